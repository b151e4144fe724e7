import './fonts.css';
import './styles.css';
import { render } from 'preact';
import { App } from './app';
import { bindAddress } from './state/address';
import { bindData } from './state/data';
import { bindLook } from './state/look';
import { openSession } from './state/session';
import { bindTheme } from './state/theme';

bindTheme();
bindAddress();
bindData();
bindLook();
void openSession();

const root = document.getElementById('app');
if (root) render(<App />, root);
