/** Tests failures and changes of pods, in the order of the imports. All tests share one mesh. */
import './lasting/failures.ts';
import './lasting/pods.ts';
