/** A node agent that hands out pods like istio-cni: Add to the newest session alone, Del to all (docs/spec/cni.md §4). */
import { once, EventEmitter } from 'node:events';
import { NetnsHandle } from '../../lib/linux/netns-handle.ts';
import { listenSeqpacket } from '../../lib/linux/seqpacket.ts';
import type { SeqpacketConnection, SeqpacketServer } from '../../lib/linux/seqpacket.ts';
import { decodeAck, encodeRequest } from '../../lib/zds/frames.ts';
import type { ZdsRequest } from '../../lib/zds/frames.ts';
import type { TeardownOwner } from './actor-context.ts';

/** The answer to a message whose session has ended. */
export const GONE = 'the session has ended';

/** One proxy's session. */
class Session {
  readonly connection: SeqpacketConnection;
  #turn: Promise<unknown> = Promise.resolve();
  readonly #answers = new EventEmitter<{ answer: [string | null] }>();

  constructor(connection: SeqpacketConnection, onHello: () => void) {
    this.connection = connection;
    let greeted = false;
    connection.onMessage = ({ data }) => {
      if (greeted) this.#answers.emit('answer', decodeAck(data));
      else onHello();
      greeted = true;
    };
    connection.onClose = () => this.#answers.emit('answer', GONE);
  }

  /** Sends the message when those before it are answered; resolves to its answer, null for success. */
  ask(request: ZdsRequest, fd?: number): Promise<string | null> {
    const asked = this.#turn.then(async () => {
      if (!this.connection.open) return GONE;
      const answered = once(this.#answers, 'answer');
      await this.connection.send(encodeRequest(request), fd).catch(() => undefined);
      return (await answered)[0] as string | null;
    });
    this.#turn = asked;
    return asked;
  }
}

/** Keeps the node's pods; the end of the test closes it. */
export class NewestAgent {
  /** Sessions since the start. */
  accepted = 0;
  /** Whether a snapshot is announced as complete; set it before a session begins. */
  completes = true;
  readonly #path: string;
  readonly #pods = new Map<string, NetnsHandle | null>();
  #server: SeqpacketServer | null = null;
  #sessions: Session[] = [];

  constructor(t: TeardownOwner, path: string) {
    this.#path = path;
    t.teardown(() => {
      this.close();
      for (const netns of this.#pods.values()) netns?.release();
    });
    this.listen();
  }

  /** Open sessions, the newest last. */
  get sessions(): readonly Session[] {
    return this.#sessions.filter(({ connection }) => connection.open);
  }

  listen(): void {
    const onError = (error: Error): never => {
      throw error;
    };
    this.#server = listenSeqpacket(this.#path, { mode: 0o600, onError });
    this.#server.onConnection = (connection) => {
      this.accepted += 1;
      const session = new Session(connection, () => void this.#greet(session));
      this.#sessions.push(session);
    };
  }

  /** Ends all sessions and stops listening; the pods stay known. */
  close(): void {
    this.#server?.close();
    for (const { connection } of this.#sessions) connection.close();
    this.#sessions = [];
  }

  /** Knows the pod from now on, and tells the newest session; resolves to its answer. A pod without a namespace is only kept. */
  async add(uid: string, path: string | null): Promise<string | null> {
    this.#pods.get(uid)?.release();
    const netns = path === null ? null : NetnsHandle.open(path);
    this.#pods.set(uid, netns);
    const newest = this.sessions.at(-1);
    if (newest === undefined) return GONE;
    return netns === null ? null : this.#add(newest, uid, netns);
  }

  /** Forgets the pod and tells all sessions; resolves to their answers. */
  del(uid: string): Promise<readonly (string | null)[]> {
    this.#pods.get(uid)?.release();
    this.#pods.delete(uid);
    return Promise.all(this.sessions.map((session) => session.ask({ type: 'del', uid })));
  }

  async #greet(session: Session): Promise<void> {
    const told = [...this.#pods].map(([uid, netns]) =>
      netns === null ? session.ask({ type: 'keep', uid }) : this.#add(session, uid, netns),
    );
    await Promise.all(told);
    if (this.completes) await session.ask({ type: 'snapshotSent' });
  }

  async #add(session: Session, uid: string, netns: NetnsHandle): Promise<string | null> {
    const name = uid.replace(/^uid-/, '');
    const info = { name, namespace: 'demo', serviceAccount: name };
    netns.retain();
    try {
      return await session.ask({ type: 'add', uid, info }, netns.fd);
    } finally {
      netns.release();
    }
  }
}
