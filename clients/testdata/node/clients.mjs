// Plays the steps on standard input with one of Node's clients: see python.py for
// the lines. The proxy and the CA come from the environment, as the client reads
// them; PROXY is for those that are told in code.
import http from 'node:http'
import https from 'node:https'
import { createInterface } from 'node:readline'

const timeout = 60_000

async function viaFetch(fetch, options) {
  return async (method, url, headers, body) => {
    const answer = await fetch(url, { method, headers, body, signal: AbortSignal.timeout(timeout), ...options })
    return [answer.status, (name) => answer.headers.get(name), await answer.text()]
  }
}

async function viaUndici(module) {
  const { fetch, ProxyAgent } = await import(module)
  return viaFetch(fetch, { dispatcher: new ProxyAgent(process.env.PROXY) })
}

async function viaAxios(module) {
  const { default: axios } = await import(module)
  // From HTTP_PROXY it would send the user name percent-encoded, and no label is read in that.
  const { protocol, hostname, port, username, password } = new URL(process.env.PROXY)
  const auth = { username: decodeURIComponent(username), password }
  const kept = { proxy: { protocol, host: hostname, port, auth }, httpAgent: new http.Agent({ keepAlive: true }) }
  return async (method, url, headers, data) => {
    const answer = await axios.request({
      method, url, headers, data, timeout, ...kept, validateStatus: () => true, responseType: 'text', transformResponse: (t) => t,
    })
    return [answer.status, (name) => answer.headers[name.toLowerCase()], answer.data]
  }
}

async function viaProxyAgent() {
  const { HttpsProxyAgent } = await import('https-proxy-agent')
  const agent = new HttpsProxyAgent(process.env.PROXY, { keepAlive: true })
  return (method, url, headers, body) =>
    new Promise((resolve, reject) => {
      const send = url.startsWith('https:') ? https.request : http.request
      const request = send(url, { method, headers, agent, timeout }, (answer) => {
        let text = ''
        answer.on('data', (part) => (text += part)).on('error', reject)
        answer.on('end', () => resolve([answer.statusCode, (name) => answer.headers[name.toLowerCase()], text]))
      })
      request.on('error', reject).end(body)
    })
}

const clients = {
  fetch: () => viaFetch(fetch, {}),
  'undici 7': () => viaUndici('undici-7'),
  'undici 8': () => viaUndici('undici-8'),
  axios: () => viaAxios('axios'),
  'axios 1.7.9': () => viaAxios('axios-1.7.9'),
  'https-proxy-agent': viaProxyAgent,
}

const call = await clients[process.argv[2]]()
for await (const line of createInterface({ input: process.stdin })) {
  const [method, url, key, body] = line.split('\t')
  let result
  try {
    const [status, field, text] = await call(method, url, key ? { 'X-Idempotency-Key': key } : {}, body || undefined)
    result = [status, field('X-Retry-Count'), field('X-Retry-Reason'), field('Idempotency-Replayed'), text]
  } catch (error) {
    result = [0, '', '', '', `${error.message} ${error.cause?.message ?? ''}`]
  }
  console.log(result.map((r) => String(r ?? '').replace(/\s+/g, ' ').trim()).join('\t'))
}
process.exit(0)
