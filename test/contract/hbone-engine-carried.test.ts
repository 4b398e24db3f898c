import test from 'ava';
import { carriedEngine } from '../../lib/hbone/engine-carried/engine.ts';
import { engineContract } from './hbone-engine.ts';

engineContract(test, carriedEngine);
