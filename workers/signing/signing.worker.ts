/** A signing thread's entry for piscina. */
import { sign } from './sign.ts';

export default sign;
