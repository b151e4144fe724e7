/** Ask for a token, because the hub requires one. */

import { useState } from 'preact/hooks';
import { signIn } from './state/session';
import { Button, Field } from './ui/parts';

export function TokenForm({ reason }: { reason: string | null }) {
  const [token, setToken] = useState('');
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!token.trim()) return;
    setBusy(true);
    await signIn(token.trim());
    setBusy(false);
  };
  return (
    <form class="token-form" onSubmit={(event) => void submit(event)}>
      <p>
        This hub requires a token. <code>naksha token my-app --key secret:PATH</code> mints one. It is kept until this
        browser tab is closed.
      </p>
      <Field label="Token">
        <textarea
          rows={4}
          value={token}
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => setToken(event.currentTarget.value)}
        />
      </Field>
      {reason !== null && (
        <p class="note error" role="alert">
          {reason}
        </p>
      )}
      <Button kind="primary" type="submit" icon="key" disabled={isBusy || !token.trim()}>
        Continue
      </Button>
    </form>
  );
}
