/** Plays the state thread's part: real stores over JSON rows, one copy for any number of listener threads. */
import { MessageChannel } from 'node:worker_threads';
import type { MessagePort } from 'node:worker_threads';
import { STATE_SLICE_MS } from '../../services/node-proxy/limits.ts';
import { compileProgram } from '../../lib/policy/compile.ts';
import type { Authorization } from '../../lib/policy/model.ts';
import { PolicyStore } from '../../lib/policy/policy-store.ts';
import { PackedStore } from '../../lib/state/packed-store.ts';
import type { AddressResource } from '../../lib/state/packed-store.ts';
import { EndpointFeeds } from '../../services/node-proxy/state-thread/endpoint-feeds.ts';
import { TimeSlice } from '../../lib/async/time-slice.ts';
import type { PodInfo } from '../../workers/listener/protocol/control.ts';
import type { StateRequest, StateResponse } from '../../workers/listener/protocol/state.ts';

interface Watcher {
  readonly port: MessagePort;
  readonly pods: Map<string, PodInfo>;
  readonly programs: Set<string>;
}

export class TestState {
  /** While false, lookups are answered "cannot tell yet". */
  synced = true;
  lookups = 0;
  readonly #addresses = new PackedStore((bytes) => fromJson<AddressResource>(bytes), {
    endpointChanged: (service, uid) => this.#feeds.changed(service, uid),
  });
  readonly #feeds = new EndpointFeeds(this.#addresses);
  readonly #policies = new PolicyStore((bytes) => fromJson<Authorization>(bytes), {
    unknownReference: 'deny',
  });
  readonly #watchers: Watcher[] = [];

  /** Opens a port for one more thread. */
  connect(): MessagePort {
    const { port1, port2 } = new MessageChannel();
    const watcher: Watcher = { port: port1, pods: new Map(), programs: new Set() };
    this.#watchers.push(watcher);
    port1.on('message', (message: StateRequest) => this.#answer(watcher, message));
    port1.unref();
    return port2;
  }

  set(name: string, resource: AddressResource | null): void {
    const ids = this.#addresses.apply(name, resource === null ? null : toJson(resource));
    for (const watcher of this.#watchers) {
      this.#send(watcher, { type: 'invalidate', ids });
      this.#tellAll(watcher);
    }
    void this.#feeds.publish(new TimeSlice(STATE_SLICE_MS));
  }

  setPolicy(key: string, policy: Authorization | null): void {
    this.#policies.apply(key, policy === null ? null : toJson(policy));
    this.refresh();
  }

  /** Sends every thread its pods again, as the end of a pending wait does. */
  refresh(): void {
    for (const watcher of this.#watchers) this.#tellAll(watcher);
  }

  close(): void {
    for (const { port } of this.#watchers) port.close();
  }

  #answer(watcher: Watcher, message: StateRequest): void {
    switch (message.type) {
      case 'watch':
        watcher.pods.set(message.pod.uid, message.pod);
        this.#tell(watcher, message.pod);
        break;
      case 'unwatch':
        watcher.pods.delete(message.uid);
        break;
      case 'lookup':
        this.lookups += 1;
        this.#lookup(watcher, message);
        break;
      case 'endpoints.taken':
        this.#feeds.taken(this.#watchers.indexOf(watcher), message.service, message.epoch);
        break;
      case 'endpoints.release':
        this.#feeds.release(this.#watchers.indexOf(watcher), message.service, message.epoch);
        break;
    }
  }

  #lookup(watcher: Watcher, message: Extract<StateRequest, { type: 'lookup' }>): void {
    const { id, keys } = message;
    const answers = keys.map((key) => (this.synced ? this.#addresses.head(key) : null));
    const services = answers.flatMap((answer) => answer?.services ?? []);
    const thread = this.#watchers.indexOf(watcher);
    const send = (response: StateResponse): void => this.#send(watcher, response);
    const again = (): void => this.#lookup(watcher, message);
    if (!this.#feeds.offer(thread, services, send, again)) return;
    send({ type: 'answer', id, answers });
  }

  #tellAll(watcher: Watcher): void {
    for (const pod of watcher.pods.values()) this.#tell(watcher, pod);
  }

  #tell(watcher: Watcher, pod: PodInfo): void {
    const { namespace, name, serviceAccount, uid } = pod;
    const workload = this.#addresses.localWorkload(namespace, name, serviceAccount, '');
    if (workload === null) {
      // As in node-proxy's state thread, the policies that bind it are unknown.
      const policy = { setId: '', unknown: [], pending: false, denyAll: null };
      this.#send(watcher, { type: 'local', uid, pod: { workload, services: [], policy } });
      return;
    }
    const { policies, policy, pendingUntilMs } = this.#policies.effectiveFor(workload, Date.now());
    if (!watcher.programs.has(policy.setId)) {
      watcher.programs.add(policy.setId);
      this.#send(watcher, { type: 'program', program: compileProgram(policy.setId, policies) });
    }
    const services = this.#addresses.servicesOf(workload);
    this.#send(watcher, { type: 'local', uid, pod: { workload, services, policy } });
    if (pendingUntilMs !== null) {
      setTimeout(() => this.#tell(watcher, pod), pendingUntilMs - Date.now() + 1).unref();
    }
  }

  #send(watcher: Watcher, message: StateResponse): void {
    watcher.port.postMessage(message);
  }
}

function toJson(value: unknown): Uint8Array {
  return Buffer.from(JSON.stringify(value));
}

function fromJson<T>(bytes: Uint8Array): T {
  return JSON.parse(Buffer.from(bytes).toString()) as T;
}
