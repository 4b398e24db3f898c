import test from 'ava';
import { http2Engine } from '../../lib/hbone/engine-http2/engine.ts';
import { engineContract } from './hbone-engine.ts';

engineContract(test, http2Engine);
