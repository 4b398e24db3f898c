import { fileURLToPath } from 'node:url';

const at = (path: string): string => fileURLToPath(new URL(`../../../${path}`, import.meta.url));

/** The script that builds the addon. */
export const ADDON_SCRIPT = at('lib/linux/addon/build.sh');
/** The addon that every process loads. */
export const USUAL_ADDON = at('lib/linux/addon/build/weft.node');
/** The folder of the addon with sanitizers. */
export const SANITIZED_FOLDER = at('.cache/native/addon');
/** The addon with sanitizers. */
export const SANITIZED_ADDON = `${SANITIZED_FOLDER}/weft.node`;
