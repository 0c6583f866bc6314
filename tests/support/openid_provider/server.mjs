// An OpenID provider for tests: client credentials, and access tokens that are JSON Web Tokens.
// Arguments: port, file with the private key set, client id, client secret, audience.
import { readFileSync } from 'node:fs';
import { Provider } from 'oidc-provider';

const [port, keys, clientId, clientSecret, audience] = process.argv.slice(2);
const resource = {
  audience,
  scope: 'sharing',
  accessTokenFormat: 'jwt',
  accessTokenTTL: 3600,
  jwt: { sign: { alg: 'RS256' } },
};
const provider = new Provider(`http://127.0.0.1:${port}`, {
  jwks: JSON.parse(readFileSync(keys)),
  clients: [
    {
      client_id: clientId,
      client_secret: clientSecret,
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: [],
    },
  ],
  scopes: ['sharing'],
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => audience,
      getResourceServerInfo: () => resource,
    },
  },
});
provider.listen(Number(port), '127.0.0.1');
