import type { X509Certificate } from 'node:crypto';
import type { IssuedPath, PathIssuer } from '../identity/revocation-book.ts';
import type { Timer } from '../clock/clock.ts';
import type { Tunnel } from './engine.ts';

/** A live tunnel and the facts its peer was judged by. */
export interface TrackedTunnel {
  readonly tunnel: Tunnel;
  readonly reporter: 'source' | 'destination';
  /** Our own identity on this tunnel. */
  readonly identity: string;
  /** When its peer was verified, milliseconds since the epoch. */
  readonly establishedMs: number;
  /** The roots that its peer was last verified against, PEM. */
  rootsPem: string;
  /** The verified path of its peer; null when no list is configured, or no path was found. */
  path: IssuedPath | null;
  /** Ends it after the grace; null while its peer is trusted. */
  ending: Timer | null;
}

/** An authority above live tunnels. */
interface IssuerNode {
  readonly issuer: PathIssuer;
  /** Tunnels that depend on a certificate it issued (leaf or authority), by serial number. */
  readonly issued: Map<string, Set<TrackedTunnel>>;
}

/** The tunnels that depend on one certificate of an authority. */
export interface IssuedTunnels {
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

  add(tracked: TrackedTunnel): void {
    this.#all.add(tracked);
    this.#index(tracked);
  }

  /** Gives a tunnel another path. */
  move(tracked: TrackedTunnel, path: IssuedPath | null): void {
    this.#unindex(tracked);
    tracked.path = path;
    if (this.#all.has(tracked)) this.#index(tracked);
  }

  delete(tracked: TrackedTunnel): void {
    this.#all.delete(tracked);
    this.#unindex(tracked);
  }

  /** Authorities that live tunnels depend on. */
  issuers(): PathIssuer[] {
    return [...this.#nodes.values()].map(({ issuer }) => issuer);
  }

  /** The tunnels that depend on an authority now, by certificate. */
  issuedBy(issuer: PathIssuer): IssuedTunnels[] {
    const issued = this.#nodes.get(issuer.fingerprint)?.issued ?? [];
    return [...issued].map(([serial, tunnels]) => ({
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

/** A serial number as certificate tools print it. */
export function serialText(serial: Buffer): string {
  return serial.toString('hex').toUpperCase();
}

/** The subject of a certificate for messages; a certificate with an empty subject has none. */
export function issuerText(certificate: X509Certificate): string {
  return certificate.subject?.replaceAll('\n', ', ') ?? 'without a name';
}
