import test from 'ava';
import { codeLines } from '../../size/code-lines.ts';

test('comments, blank lines and imports are no code', (t) => {
  const text = [
    "import { a } from './a.ts';",
    'import {',
    '  b,',
    "} from './b.ts';",
    '',
    '/** One line. */',
    '/**',
    ' * Several lines.',
    ' */',
    '// A reason.',
    'export const c = a + b; // behind code',
    "const lazy = await import('./d.ts');",
    'export { c as d };',
  ].join('\n');
  t.is(codeLines('x.ts', text), 3);
});

test('Lua and C++ have their own comments and imports', (t) => {
  t.is(codeLines('x.lua', '-- KEYS: a\nlocal a = 1\n\nreturn a\n'), 2);
  t.is(codeLines('x.cc', '#include <a.h>\n/* a */\nint a;\n#define B 1\n'), 2);
});
