// An OpenID provider for tests at which people sign in by a browser, with any password.
// Arguments: port, file with the private key set, URL to which it leads back, secret of the one client.
// The group of a user is that of the name: olivia-operators is one of the operators.
import { readFileSync } from 'node:fs';
import { Provider } from 'oidc-provider';

const [port, keys, redirectUrl, secret] = process.argv.slice(2);
const client = {
  grant_types: ['authorization_code'],
  response_types: ['code'],
  redirect_uris: [redirectUrl],
};
// Another site than that of the console, whose host is 127.0.0.1.
const provider = new Provider(`http://localhost:${port}`, {
  jwks: JSON.parse(readFileSync(keys)),
  clients: [
    { ...client, client_id: 'public', token_endpoint_auth_method: 'none' },
    { ...client, client_id: 'confidential', client_secret: secret },
  ],
  claims: { openid: ['sub'], groups: ['groups'] },
  conformIdTokenClaims: false,
  cookies: { keys: ['of the tests'] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, groups: id.split('-').slice(1) }),
  }),
});
provider.listen(Number(port), 'localhost');
