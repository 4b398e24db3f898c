import test from 'ava';
import { framingEngine } from '../../lib/hbone/engine-framing/engine.ts';
import { engineContract } from './hbone-engine.ts';

engineContract(test, framingEngine);
