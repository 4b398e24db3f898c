import test from 'ava';
import {
  MAX_BUDGET_THREADS,
  NodeBudget,
  clearBudget,
  newBudgetMemory,
} from '../../../../lib/net/node-budget.ts';

const LIMITS = { connections: 3, handshakes: 1 };

test('threads of any number count together, in whatever order they come', (t) => {
  const memory = newBudgetMemory();
  const last = new NodeBudget(memory, MAX_BUDGET_THREADS - 1, LIMITS);
  const first = new NodeBudget(memory, 0, LIMITS);
  const later = new NodeBudget(memory, 7, LIMITS);
  for (const budget of [last, first, later]) t.true(budget.take('connections'));
  for (const budget of [last, first, later]) {
    t.is(budget.used('connections'), 3);
    t.is(budget.own('connections'), 1);
    t.false(budget.take('connections'));
  }
  later.give('connections');
  t.true(first.take('connections'));
});

test('what a dead thread had taken is given back', (t) => {
  const memory = newBudgetMemory();
  const dead = new NodeBudget(memory, 2, LIMITS);
  const other = new NodeBudget(memory, 1, LIMITS);
  t.true(dead.take('handshakes'));
  t.false(other.take('handshakes'));
  clearBudget(memory, 2);
  t.true(other.take('handshakes'));
});
