/** The parts of node-forge that are loaded by themselves; the published types know the package's entry alone. */
declare module 'node-forge/lib/asn1.js' {
  import { asn1 } from 'node-forge';

  export default asn1;
}

declare module 'node-forge/lib/util.js' {
  import { util } from 'node-forge';

  export default util;
}
