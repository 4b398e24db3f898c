import { TableMirror } from '../../../lib/bus/table-mirror.ts';
import type { TableSink } from '../../../lib/bus/table-mirror.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { DecodeAuthorization } from '../../../lib/policy/named-policy.ts';
import { PolicyStore } from '../../../lib/policy/policy-store.ts';
import { PackedStore } from '../../../lib/state/packed-store.ts';
import type { DecodeAddress } from '../../../lib/state/packed-store.ts';
import type { AnswerHead, LookupKey } from '../../../lib/state/view.ts';
import { keyOfWanted } from '../../../lib/state/wanted-name.ts';
import type { StateRequest } from '../../../workers/listener/protocol/state.ts';
import { DUMP_OBJECTS_PER_MESSAGE, MAX_LOOKUP_KEYS, STATE_SLICE_MS } from '../limits.ts';
import { readDump } from './dump-reader.ts';
import { EndpointFeeds } from './endpoint-feeds.ts';
import { LocalIdentities } from './local-identities.ts';
import { AnsweredNames } from './on-demand/answered-names.ts';
import type { TablePosition } from './on-demand/answered-names.ts';
import { Demands } from './on-demand/demands.ts';
import { ProgramRegistry } from './program-registry.ts';
import type { DumpSection, FeedStep, StateSettings, StateStats, StateTable } from './protocol.ts';
import { TimeSlice } from '../../../lib/async/time-slice.ts';
import { unpackRows } from './packed-rows.ts';
import { Watches } from './watches.ts';
import type { SendToThread } from './watches.ts';

/** Collaborators of {@link StateEngine}. */
export interface StateEngineDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly decodeAddress: DecodeAddress;
  readonly decodeAuthorization: DecodeAuthorization;
  /** Is called with all identities of this node's mesh workloads when they change. */
  identitiesChanged(identities: readonly string[]): void;
  /** Is called with names that the ingester is to be asked for. */
  want(names: readonly string[]): void;
}

/**
 * Holds the mesh state of one node-proxy process: takes table rows, answers lookups of listener threads, and tells them about
 * their own pods. Long work is cut into slices so that a lookup never waits for it.
 */
export class StateEngine {
  readonly #deps: StateEngineDeps;
  readonly #store: PackedStore;
  readonly #policies: PolicyStore;
  readonly #programs: ProgramRegistry;
  readonly #watches: Watches;
  readonly #feeds: EndpointFeeds;
  readonly #identities: LocalIdentities;
  readonly #answered = new AnsweredNames();
  /** Null while the whole mesh is followed. */
  readonly #demands: Demands | null;
  /** The state of `addresses` that the running copy of it begins with. */
  #copied: TablePosition | null = null;
  readonly #mirrors: Readonly<Record<StateTable, TableMirror>>;
  /** Ids of answers that became stale since the last publication; null = all. */
  #stale: Set<string> | null = new Set();
  #policiesSeen = -1;
  #programsTouched = false;
  #unreadableRows = 0;
  #lookups = 0;
  #ready = false;

  constructor(settings: StateSettings, deps: StateEngineDeps) {
    this.#deps = deps;
    this.#store = new PackedStore(deps.decodeAddress, {
      ...(settings.node === '' ? {} : { node: settings.node }),
      endpointChanged: (service, uid) => this.#feeds.changed(service, uid),
    });
    this.#feeds = new EndpointFeeds(this.#store);
    this.#policies = new PolicyStore(deps.decodeAuthorization, {
      unknownReference: settings.policyUnknownReference,
    });
    this.#programs = new ProgramRegistry(deps.log);
    this.#identities = new LocalIdentities(settings.node, settings.dedicatedTo);
    this.#demands = settings.onDemand ? this.#demand(settings.onDemand.waitMs) : null;
    this.#watches = new Watches({
      clock: deps.clock,
      demands: this.#demands,
      clusterId: settings.onDemand?.clusterId ?? '',
      policies: this.#policies,
      programs: this.#programs,
      store: this.#store,
      node: settings.node,
    });
    this.#mirrors = {
      addresses: new TableMirror(this.#addressSink(), STATE_SLICE_MS),
      authorizations: new TableMirror(this.#policySink(), STATE_SLICE_MS),
      rejections: new TableMirror(
        {
          keys: () => this.#policies.rejectionRows(),
          apply: (key, value) => this.#policies.applyRejection(key, value),
        },
        STATE_SLICE_MS,
      ),
      programs: new TableMirror(
        {
          keys: () => this.#programs.rowKeys(),
          apply: (key, value) => {
            this.#programs.apply(key, value);
            this.#programsTouched = true;
          },
        },
        STATE_SLICE_MS,
      ),
      names: new TableMirror(this.#answered, STATE_SLICE_MS),
    };
  }

  /** True when lookups are answered: every table but `programs` was copied once. */
  get ready(): boolean {
    return this.#ready;
  }

  /** Connects a listener thread, which gets messages by `send`. Replaces an earlier thread of the same number. */
  connect(thread: number, send: SendToThread): void {
    this.#feeds.forget(thread);
    this.#watches.connect(thread, send);
  }

  /** The thread is gone. */
  disconnect(thread: number): void {
    this.#feeds.forget(thread);
    this.#watches.disconnect(thread);
  }

  /** Carries out a request of a listener thread at once. */
  request(thread: number, request: StateRequest, send: SendToThread): void {
    switch (request.type) {
      case 'watch':
        this.#watches.watch(thread, request.pod);
        break;
      case 'unwatch':
        this.#watches.unwatch(thread, request.uid);
        break;
      case 'lookup':
        this.#lookups += 1;
        this.#answer(thread, request, send);
        break;
      case 'endpoints.taken':
        this.#feeds.taken(thread, request.service, request.epoch);
        break;
      case 'endpoints.release':
        this.#feeds.release(thread, request.service, request.epoch);
        break;
    }
  }

  /** Applies one step of a table; resolves when it is in force and listener threads were told. Call it for one step at a time. */
  async feed(table: StateTable, step: FeedStep): Promise<void> {
    const slice = new TimeSlice(STATE_SLICE_MS);
    await applyStep(this.#mirrors[table], step);
    if (table === 'addresses') this.#reached(step);
    const { addresses, authorizations, names, rejections } = this.#mirrors;
    const needed = [addresses, authorizations, rejections];
    if (this.#demands !== null) needed.push(names);
    if (!this.#ready && needed.every(({ synced }) => synced)) {
      this.#ready = true;
      this.#watches.enable();
      await this.#watches.policiesChanged(slice);
    }
    await this.#publish(slice);
    if (this.#demands === null || (table !== 'addresses' && table !== 'names')) return;
    this.#demands.release();
    // A pod that waits for what it needs is told once all of that is known.
    const ids = this.#demands.takeKnownPins();
    if (ids.size > 0) await this.#watches.addressesChanged(ids, slice);
  }

  /** Ends the timers. */
  close(): void {
    this.#demands?.close();
  }

  /** Reads a section for the config dump: see {@link readDump}. */
  dump(section: DumpSection): AsyncGenerator<string> {
    if (section === 'names') return this.#dumpNames();
    return readDump(this.#store, this.#policies, section);
  }

  stats(): StateStats {
    const { received, compiled } = this.#programs.counts;
    return {
      workloads: this.#identities.workloads,
      services: this.#store.size - this.#identities.workloads,
      policies: this.#policies.size,
      rejectedPolicies: this.#policies.rejected().size,
      unreadableRows: this.#unreadableRows,
      programsReceived: received,
      programsCompiled: compiled,
      lookups: this.#lookups,
      onDemand:
        this.#demands === null ? null : { ...this.#demands.stats, answered: this.#answered.size },
    };
  }

  #demand(waitMs: number): Demands {
    const { clock, want } = this.#deps;
    return new Demands({
      clock,
      waitMs,
      want,
      answered: this.#answered,
      forget: (ids) => {
        if (ids.length > 0) this.#watches.broadcast({ type: 'invalidate', ids });
      },
    });
  }

  // oxlint-disable-next-line require-await
  async *#dumpNames(): AsyncGenerator<string> {
    if (this.#demands === null) return;
    const names = [...this.#answered.keys()].filter((name) => this.#answered.knows(name)).sort();
    for (let start = 0; start < names.length; start += DUMP_OBJECTS_PER_MESSAGE) {
      const part = names.slice(start, start + DUMP_OBJECTS_PER_MESSAGE);
      yield part.map((name) => JSON.stringify(name)).join(',');
    }
  }

  /** Notes which state of the table `addresses` is held now. */
  #reached(step: FeedStep): void {
    if (step.kind === 'reset') this.#copied = step.at ?? null;
    if (this.#copied === null) return;
    if (step.kind === 'changes' && step.version !== undefined) {
      this.#copied = { ...this.#copied, version: step.version };
    }
    if (!this.#mirrors.addresses.copying) this.#answered.reached(this.#copied);
  }

  /** True when the rows held tell all there is under the key. */
  #knows(key: LookupKey, { workloads, services }: AnswerHead): boolean {
    if (this.#demands !== null) return this.#demands.knows(key);
    // A proxy that was not told of it must not take what is not known for what is not in the mesh.
    return !this.#answered.onDemand || workloads.length + services.length > 0;
  }

  /** Answers when the thread has the endpoints of the services that the answer names. */
  #answer(
    thread: number,
    request: Extract<StateRequest, { type: 'lookup' }>,
    send: SendToThread,
  ): void {
    const { type, id, keys } = request;
    const then = (): void => this.#answer(thread, { type, id, keys }, send);
    if (this.#ready && this.#demands?.offer(request, then) === false) return;
    const answers = request.keys.map((key, index): AnswerHead | null => {
      if (!this.#ready || index >= MAX_LOOKUP_KEYS) return null;
      const head = this.#store.head(key);
      return this.#knows(key, head) ? head : null;
    });
    const services = answers.flatMap((answer) => answer?.services ?? []);
    if (!this.#feeds.offer(thread, services, send, then)) return;
    send({ type: 'answer', id, answers });
  }

  #addressSink(): TableSink {
    return {
      keys: () => this.#store.names(),
      apply: (name, value) => {
        try {
          this.#identities.count(this.#store.resource(name), -1);
          const stale = this.#store.apply(name, value);
          if (stale === null) this.#stale = null;
          else for (const id of stale) this.#stale?.add(id);
          if (this.#demands !== null) this.#noteEmptied(stale);
        } catch (error) {
          this.#unreadable('addresses', name, error);
        } finally {
          this.#identities.count(this.#store.resource(name), 1);
        }
      },
    };
  }

  /** Notes the names whose last resource has gone. */
  #noteEmptied(stale: readonly string[] | null): void {
    const names =
      stale === null ? this.#answered.keys() : stale.map((id) => id.slice(id.indexOf(':') + 1));
    for (const name of names) {
      const key = keyOfWanted(name);
      if (key === null) continue;
      const { workloads, services } = this.#store.head(key);
      if (workloads.length + services.length === 0) this.#answered.emptied(name);
    }
  }

  #policySink(): TableSink {
    return {
      keys: () => this.#policies.keys(),
      apply: (key, value) => {
        const { error } = this.#policies.apply(key, value);
        if (error !== null) this.#unreadable('authorizations', key, error);
      },
    };
  }

  #unreadable(table: StateTable, key: string, error: unknown): void {
    this.#unreadableRows += 1;
    this.#deps.log.warn({ table, key, error: errorText(error) }, 'state.unreadable-row');
  }

  /** Tells threads what the last rows changed. */
  async #publish(slice: TimeSlice): Promise<void> {
    const stale = this.#stale;
    this.#stale = new Set();
    if (stale === null || stale.size > 0) {
      this.#watches.broadcast({ type: 'invalidate', ids: stale === null ? null : [...stale] });
    }
    await this.#feeds.publish(slice);
    if (stale === null || this.#policies.revision !== this.#policiesSeen) {
      this.#policiesSeen = this.#policies.revision;
      await this.#watches.policiesChanged(slice);
    } else if (stale.size > 0) {
      await this.#watches.addressesChanged(stale, slice);
    }
    if (this.#programsTouched) {
      this.#programsTouched = false;
      await this.#watches.programsChanged(slice);
    }
    const identities = this.#identities.takeChanged();
    if (identities !== null) this.#deps.identitiesChanged(identities);
  }
}

function applyStep(mirror: TableMirror, step: FeedStep): Promise<void> {
  switch (step.kind) {
    case 'reset':
      return mirror.onReset();
    case 'entries':
      return mirror.onEntries(unpackRows(step.rows));
    case 'changes':
      return mirror.onChanges(unpackRows(step.rows));
    case 'synced':
      return mirror.onSynced();
  }
}
