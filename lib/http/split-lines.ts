/** Longest line of a stream; a longer one means a broken peer. */
const LINE_LIMIT_CHARACTERS = 64 * 1024 * 1024;

/** Yields the non-empty lines of a text stream; the last may lack its line end. Throws when a line is too long. */
export async function* splitLines(stream: AsyncIterable<unknown>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of stream) {
    rest +=
      typeof chunk === 'string' ? chunk : decoder.decode(chunk as Uint8Array, { stream: true });
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > LINE_LIMIT_CHARACTERS) throw new Error('a line is too long');
    for (const line of lines) if (line !== '') yield line;
  }
  if (rest !== '') yield rest;
}
