/** Resources of the core API that actors use. */
import type { ResourceType } from './resource.ts';

/** Pods. */
export const PODS: ResourceType = core('pods', true);
/** Namespaces. */
export const NAMESPACES: ResourceType = core('namespaces', false);
/** Service accounts. */
export const SERVICE_ACCOUNTS: ResourceType = core('serviceaccounts', true);
/** Events. */
export const EVENTS: ResourceType = core('events', true);

function core(plural: string, namespaced: boolean): ResourceType {
  return { group: '', versions: ['v1'], plural, namespaced };
}
