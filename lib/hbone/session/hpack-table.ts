/** The tables of HPACK (RFC 7541 §2.3, appendix A). */

const STATIC_TEXT =
  ':authority|;:method|GET;:method|POST;:path|/;:path|/index.html;:scheme|http;:scheme|https;:status|200;:status|204;' +
  ':status|206;:status|304;:status|400;:status|404;:status|500;accept-charset|;accept-encoding|gzip, deflate;' +
  'accept-language|;accept-ranges|;accept|;access-control-allow-origin|;age|;allow|;authorization|;cache-control|;' +
  'content-disposition|;content-encoding|;content-language|;content-length|;content-location|;content-range|;' +
  'content-type|;cookie|;date|;etag|;expect|;expires|;from|;host|;if-match|;if-modified-since|;if-none-match|;' +
  'if-range|;if-unmodified-since|;last-modified|;link|;location|;max-forwards|;proxy-authenticate|;' +
  'proxy-authorization|;range|;referer|;refresh|;retry-after|;server|;set-cookie|;strict-transport-security|;' +
  'transfer-encoding|;user-agent|;vary|;via|;www-authenticate|';

/** Size of an entry besides its texts (RFC 7541 §4.1). */
const ENTRY_OVERHEAD = 32;

/** A header field. */
export interface Field {
  readonly name: string;
  readonly value: string;
}

/** Entry 1 of the static table is at 0. */
export const STATIC_TABLE: readonly Field[] = STATIC_TEXT.split(';').map((entry) => {
  const [name = '', value = ''] = entry.split('|');
  return { name, value };
});

/** The size of a field in tables and lists. */
export function fieldSize(field: Field): number {
  return field.name.length + field.value.length + ENTRY_OVERHEAD;
}

/** The entries that a peer's encoder added. */
export class DynamicTable {
  /** Oldest first. */
  readonly #entries: Field[] = [];
  #size = 0;
  #capacity: number;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get length(): number {
    return this.#entries.length;
  }

  /** Entries from the newest, which is 0. */
  at(index: number): Field | undefined {
    return this.#entries[this.#entries.length - 1 - index];
  }

  /** Adds an entry; one larger than the table leaves it empty. */
  add(field: Field): void {
    const size = fieldSize(field);
    this.#shrinkTo(this.#capacity - size);
    if (size > this.#capacity) return;
    this.#entries.push(field);
    this.#size += size;
  }

  resize(capacity: number): void {
    this.#capacity = capacity;
    this.#shrinkTo(capacity);
  }

  #shrinkTo(size: number): void {
    while (this.#size > size) {
      const oldest = this.#entries.shift();
      if (oldest === undefined) return;
      this.#size -= fieldSize(oldest);
    }
  }
}
