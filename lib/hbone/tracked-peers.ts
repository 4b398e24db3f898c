import type { X509Certificate } from 'node:crypto';
import type { IssuedPath, PathIssuer } from '../identity/revocation-book.ts';
import type { Tunnel } from './engine.ts';

/** A live tunnel and what its peer was judged by. */
export interface TrackedTunnel {
  readonly tunnel: Tunnel;
  readonly reporter: 'source' | 'destination';
  /** Our own identity on this tunnel. */
  readonly identity: string;
  /** When its peer was verified, milliseconds since the epoch. */
  readonly establishedMs: number;
  /** The roots its peer is known to lead to, PEM. */
  rootsPem: string;
  /** Null when nobody asked for it, or it cannot be found. */
  path: IssuedPath | null;
}

/** An authority above live tunnels. */
interface IssuerNode {
  readonly issuer: PathIssuer;
  /** What it issued, leaf or authority, by serial number: the tunnels that stand on it. */
  readonly issued: Map<string, Set<TrackedTunnel>>;
}

/** What one authority issued under one serial number. */
export interface IssuedTunnels {
  readonly issuer: PathIssuer;
  readonly serial: Buffer;
  readonly tunnels: ReadonlySet<TrackedTunnel>;
}

/** The live tunnels of a thread, by the authorities above their peers. */
export class TrackedPeers {
  readonly #all = new Set<TrackedTunnel>();
  readonly #nodes = new Map<string, IssuerNode>();

  get size(): number {
    return this.#all.size;
  }

  [Symbol.iterator](): IterableIterator<TrackedTunnel> {
    return this.#all.values();
  }

  has(tracked: TrackedTunnel): boolean {
    return this.#all.has(tracked);
  }

  add(tracked: TrackedTunnel): void {
    this.#all.add(tracked);
    this.#index(tracked);
  }

  /** The same tunnel stands on another path from now on. */
  move(tracked: TrackedTunnel, path: IssuedPath | null): void {
    this.#unindex(tracked);
    tracked.path = path;
    if (this.#all.has(tracked)) this.#index(tracked);
  }

  delete(tracked: TrackedTunnel): void {
    this.#all.delete(tracked);
    this.#unindex(tracked);
  }

  /** Authorities that live tunnels stand on. */
  issuers(): PathIssuer[] {
    return [...this.#nodes.values()].map(({ issuer }) => issuer);
  }

  /** What stands on an authority, as it is now. */
  issuedBy(issuer: PathIssuer): IssuedTunnels[] {
    const issued = this.#nodes.get(issuer.fingerprint)?.issued ?? [];
    return [...issued].map(([serial, tunnels]) => ({
      issuer,
      serial: Buffer.from(serial, 'latin1'),
      tunnels,
    }));
  }

  #index(tracked: TrackedTunnel): void {
    for (const { issuer, serial } of tracked.path ?? []) {
      const node = this.#nodes.get(issuer.fingerprint) ?? { issuer, issued: new Map() };
      this.#nodes.set(issuer.fingerprint, node);
      const key = serial.toString('latin1');
      const tunnels = node.issued.get(key) ?? new Set<TrackedTunnel>();
      node.issued.set(key, tunnels);
      tunnels.add(tracked);
    }
  }

  #unindex(tracked: TrackedTunnel): void {
    for (const { issuer, serial } of tracked.path ?? []) {
      const node = this.#nodes.get(issuer.fingerprint);
      const key = serial.toString('latin1');
      const tunnels = node?.issued.get(key);
      tunnels?.delete(tracked);
      if (tunnels?.size === 0) node?.issued.delete(key);
      if (node?.issued.size === 0) this.#nodes.delete(issuer.fingerprint);
    }
  }
}

/** A serial number as certificates' tools print it. */
export function serialText(serial: Buffer): string {
  return serial.toString('hex').toUpperCase();
}

/** A name for messages; an empty subject has none. */
export function issuerText(certificate: X509Certificate): string {
  return certificate.subject?.replaceAll('\n', ', ') ?? 'without a name';
}
