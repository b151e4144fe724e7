/** The viewer of `naksha diff --map`: the changes are in the file, and nothing is loaded. */

import '../styles.css';
import './viewer.css';
import { render } from 'preact';
import { bindAddress } from '../state/address';
import { bindTheme } from '../state/theme';
import { type Comparison, readComparison } from './comparison';
import { Viewer } from './viewer';

bindTheme();
bindAddress();

const root = document.getElementById('app');

function show(comparison: Comparison): void {
  document.title = `Changes of ${comparison.collection}`;
  if (root) render(<Viewer comparison={comparison} />, root);
}

readComparison().then(show, (error: unknown) => {
  if (root) root.textContent = `The changes in this file cannot be read; write it again with naksha diff. ${String(error)}`;
});
