import type { IncomingMessage, ServerResponse } from 'node:http';

/** A handler of the admin server; what it throws becomes a 500 with the error's text. */
export type AdminHandler = (
  request: IncomingMessage,
  response: ServerResponse,
  url: URL,
) => void | Promise<void>;

/** Registers handlers on the admin server of the process. */
export interface AdminRoutes {
  /** Handles `method` (or any, with `*`) on `/<actor><path>`. */
  route(method: 'GET' | 'POST' | 'PUT' | 'DELETE' | '*', path: string, handler: AdminHandler): void;
}

const ORIGIN = 'http://localhost';

/** What the request asks for; null when its target is no path (`//`, say, is a host without a name). */
export function requestUrl(request: IncomingMessage): URL | null {
  const target = request.url ?? '/';
  return URL.canParse(target, ORIGIN) ? new URL(target, ORIGIN) : null;
}

/** Writes `body` as JSON with the given status. */
export function sendJson(response: ServerResponse, status: number, body: unknown): void {
  const text = `${JSON.stringify(body)}\n`;
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  });
  response.end(text);
}

/** Writes `text` as plain text with the given status. */
export function sendText(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, {
    'content-type': 'text/plain; charset=utf-8',
    'content-length': Buffer.byteLength(text),
  });
  response.end(text);
}
