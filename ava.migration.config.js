import cluster from './ava.cluster.config.js';

/** The migration of an Istio installation, on a cluster of its own: `npm run soak:migration`. */
export default { ...cluster, files: ['test/cluster/migration.soak.ts'], timeout: '900s' };
