// The 2.x TypeScript SDK: `client2.mjs stdio|http|sse legacy|auto|2026-07-28`.

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { INVALID_PARAMS, bearer, check, converse, expect, run, stdioServer, url } from './conversation.mjs';

const LEGACY_VERSION = '2025-11-25';
const MODERN_VERSION = '2026-07-28';

function transportTo(name, headers) {
  const requestInit = { headers };
  switch (name) {
    case 'stdio':
      return new StdioClientTransport(stdioServer());
    case 'http':
      return new StreamableHTTPClientTransport(url('/mcp'), { requestInit });
    case 'sse':
      return new SSEClientTransport(url('/sse'), { requestInit });
    default:
      throw new Error(`no transport ${name}`);
  }
}

function newClient(mode) {
  const negotiation = mode === 'legacy' || mode === 'auto' ? mode : { pin: mode };
  return new Client({ name: 'portcullis-clients', version: '2.0.0' }, { versionNegotiation: { mode: negotiation } });
}

await run(async (mark, transportName, mode) => {
  const isModern = mode !== 'legacy';
  const client = newClient(mode);
  await client.connect(transportTo(transportName, bearer()));
  await converse(
    {
      client,
      // It tells of the old code as of the new one.
      missingResource: INVALID_PARAMS,
      wanted: isModern ? MODERN_VERSION : LEGACY_VERSION,
      version: () => client.getNegotiatedProtocolVersion(),
      callWith: (params, options) => client.callTool(params, options),
      async updated(uri, change) {
        const { promise: heard, resolve } = Promise.withResolvers();
        client.setNotificationHandler('notifications/resources/updated', ({ params }) => {
          if (params.uri === uri) resolve();
        });
        if (!isModern) {
          await client.subscribeResource({ uri });
          await change();
          await heard;
          await client.unsubscribeResource({ uri });
          return;
        }
        const subscription = await client.listen({ resourceSubscriptions: [uri] });
        expect(subscription.honoredFilter, { resourceSubscriptions: [uri] }, 'what the server honors');
        await change();
        await heard;
        await subscription.close();
        expect(await subscription.closed, 'local', 'how the subscription ended');
      },
    },
    mark,
  );
  await client.close();

  if (transportName !== 'stdio') {
    await check('a wrong token gets nothing', async () => {
      const transport = transportTo(transportName, bearer('pcl_nobody'));
      const refused = await newClient(mode).connect(transport).catch(error => error);
      if (!(refused instanceof Error)) throw new Error('it connected');
    });
  }
}, process.argv[2], process.argv[3]);
