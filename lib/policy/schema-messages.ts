/**
 * Gives the small form of Zod the messages of the usual one. The thread of the mesh state reads its rows with the small form, which takes
 * half a megabyte less there.
 */
import * as z from 'zod/mini';
import en from 'zod/v4/locales/en.js';

z.config(en());
