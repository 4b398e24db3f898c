import cluster from './ava.cluster.config.js';

/** Forms of the chart on a cluster of their own; `npm run soak:forms`. */
export default { ...cluster, files: ['test/cluster/forms.soak.ts'], timeout: '900s' };
