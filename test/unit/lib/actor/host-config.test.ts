import test from 'ava';
import { hostConfig } from '../../../../lib/actor/host-config.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';

// spec: observability.md §6
test('log levels and format are read as upstream reads them', (t) => {
  t.like(hostConfig.parse({}), { logLevel: 'info', logFormat: 'json' });
  t.is(hostConfig.parse({ RUST_LOG: 'warn' }).logLevel, 'warn');
  const both = { RUST_LOG: 'debug,access=off', LOG_FORMAT: 'plain' };
  t.like(hostConfig.parse(both), { logLevel: 'access=off,debug', logFormat: 'plain' });
});

// spec: observability.md §6
test('a filter or format that cannot be read is a start-up error that names it', (t) => {
  const error = t.throws(() => hostConfig.parse({ RUST_LOG: 'loud', LOG_FORMAT: 'xml' }), {
    instanceOf: MeshError,
  });
  t.is(error?.code, 'CONFIG_INVALID');
  t.regex(error?.message ?? '', /RUST_LOG .*"loud" is neither a level/);
  t.regex(error?.message ?? '', /LOG_FORMAT must be one of json, plain/);
});
