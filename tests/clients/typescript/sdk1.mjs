// The 1.x TypeScript SDK: `sdk1.mjs stdio|http|sse`.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { LATEST_PROTOCOL_VERSION, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { RESOURCE_NOT_FOUND, bearer, check, converse, run, stdioServer, url } from './conversation.mjs';

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

function newClient() {
  return new Client({ name: 'portcullis-clients', version: '1.0.0' });
}

await run(async (mark, transportName) => {
  const client = newClient();
  const transport = transportTo(transportName, bearer());
  // The transport is told the version that was agreed on; the client does not show it.
  let version;
  const tell = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = agreed => {
    version = agreed;
    tell?.(agreed);
  };
  await client.connect(transport);
  await client.ping();
  await converse(
    {
      client,
      missingResource: RESOURCE_NOT_FOUND,
      wanted: LATEST_PROTOCOL_VERSION,
      version: () => version,
      callWith: (params, options) => client.callTool(params, undefined, options),
      async updated(uri, change) {
        const { promise: heard, resolve } = Promise.withResolvers();
        client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
          if (params.uri === uri) resolve();
        });
        await client.subscribeResource({ uri });
        await change();
        await heard;
        await client.unsubscribeResource({ uri });
      },
    },
    mark,
  );
  if (transportName === 'http') {
    await check('ends its session', () => transport.terminateSession());
  }
  await client.close();

  if (transportName !== 'stdio') {
    await check('a wrong token gets nothing', async () => {
      const stranger = newClient();
      const refused = await stranger.connect(transportTo(transportName, bearer('pcl_nobody'))).catch(error => error);
      if (!(refused instanceof Error)) throw new Error('it connected');
    });
  }
}, process.argv[2]);
