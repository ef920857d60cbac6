// pulsar-flex, a Pulsar client in plain JavaScript with a protocol codec of its own, produces and consumes.
//
// Usage: node scenarios.cjs HOST:PORT [PART_OF_A_NAME...]
// One line for each scenario: PASSED|FAILED name seconds text.
'use strict'

const assert = require('node:assert/strict')
const { Consumer, Producer, logLevel } = require('pulsar-flex')

const SECONDS_MAX = 30
const SILENCE_MS = 500
const [address, ...wanted] = process.argv.slice(2)
const { SUB_TYPES, ACK_TYPES } = Consumer

async function withProducer(topic, body, mode = Producer.ACCESS_MODES.SHARED) {
  const producer = new Producer({
    topic,
    discoveryServers: [address],
    producerAccessMode: mode,
    logLevel: logLevel.ERROR
  })
  await producer.create()
  try {
    return await body(producer)
  } finally {
    await producer.close()
  }
}

// Subscribes, then calls `produce`, as pulsar-flex can only ask for what comes after.  Resolves to the texts of `count`
// messages after a silence that follows the last; `onMessage(message, seen)` acknowledges.
async function consume(topic, subType, count, produce, onMessage = ({ ack }) => ack()) {
  const consumer = new Consumer({
    topic,
    subscription: 's',
    subType,
    consumerName: 'one',
    discoveryServers: [address],
    logLevel: logLevel.ERROR
  })
  await consumer.subscribe()
  const seen = []
  let done, failed
  const finished = new Promise((resolve, reject) => ([done, failed] = [resolve, reject]))
  await consumer.run({
    autoAck: false,
    onMessage: async (received) => {
      seen.push(received)
      await onMessage(received, seen).catch(failed)
      if (seen.length === count) setTimeout(done, SILENCE_MS)
    }
  })
  await produce()
  await finished
  await consumer.unsubscribe()
  return seen.map(({ message }) => message.toString())
}

const numbers = (from, to) => Array.from({ length: to - from }, (_, n) => `message ${from + n}`)

async function sendSingly(topic, count) {
  await withProducer(topic, async (producer) => {
    for (const text of numbers(0, count)) {
      await producer.sendMessage({ payload: text, properties: { text } })
    }
  })
}

async function eachType(subType, topic) {
  const found = await consume(topic, subType, 20, () => sendSingly(topic, 20))
  assert.deepEqual(found, numbers(0, 20))
}

const scenarios = {
  exclusive: (topic) => eachType(SUB_TYPES.EXCLUSIVE, topic),
  failover: (topic) => eachType(SUB_TYPES.FAILOVER, topic),
  shared: (topic) => eachType(SUB_TYPES.SHARED, topic),
  key_shared: (topic) => eachType(SUB_TYPES.KEY_SHARED, topic),

  async batches(topic) {
    const produce = () =>
      withProducer(topic, async (producer) => {
        for (let n = 0; n < 50; n += 10) {
          const messages = numbers(n, n + 10).map((payload) => ({ payload, properties: { payload } }))
          await producer.sendBatch({ messages })
        }
      })
    assert.deepEqual(await consume(topic, SUB_TYPES.EXCLUSIVE, 50, produce), numbers(0, 50))
  },

  async properties(topic) {
    const onMessage = async ({ ack, message, properties }) => {
      assert.equal(properties.text, message.toString())
      await ack()
    }
    await consume(topic, SUB_TYPES.SHARED, 3, () => sendSingly(topic, 3), onMessage)
  },

  async cumulative_ack(topic) {
    const onMessage = async ({ ack }, seen) => {
      if (seen.length === 10) await ack({ type: ACK_TYPES.CUMULATIVE })
    }
    const found = await consume(topic, SUB_TYPES.EXCLUSIVE, 10, () => sendSingly(topic, 10), onMessage)
    assert.deepEqual(found, numbers(0, 10))
  },

  async negative_ack(topic) {
    let refused = false
    const onMessage = async ({ ack, message, redeliveryCount }) => {
      const again = message.toString() === 'message 2' && refused
      assert.equal(redeliveryCount, again ? 1 : 0)
      if (message.toString() === 'message 2' && !refused) {
        refused = true
        await ack({ type: ACK_TYPES.NEGATIVE })
      } else {
        await ack()
      }
    }
    const found = await consume(topic, SUB_TYPES.SHARED, 6, () => sendSingly(topic, 5), onMessage)
    assert.deepEqual([...new Set(found)].sort(), numbers(0, 5))
  },

  async exclusive_producer(topic) {
    const produce = () =>
      withProducer(
        topic,
        (producer) => producer.sendMessage({ payload: 'message 0' }),
        Producer.ACCESS_MODES.EXCLUSIVE
      )
    assert.deepEqual(await consume(topic, SUB_TYPES.EXCLUSIVE, 1, produce), numbers(0, 1))
  }
}

async function main() {
  for (const [name, body] of Object.entries(scenarios)) {
    if (wanted.length && !wanted.some((part) => name.includes(part))) continue
    const began = process.hrtime.bigint()
    const topic = `persistent://public/default/flex-${name.replaceAll('_', '-')}-${began}`
    let status = 'PASSED'
    let text = ''
    let timer
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`not done after ${SECONDS_MAX} s`)), SECONDS_MAX * 1000)
    })
    try {
      await Promise.race([body(topic), late])
    } catch (error) {
      status = 'FAILED'
      text = String(error.message || error.constructor.name).split('\n').join(' ')
      console.error(name, error)
    }
    clearTimeout(timer)
    const seconds = Number(process.hrtime.bigint() - began) / 1e9
    console.log(`${status} ${name} ${seconds.toFixed(1)} ${text}`)
  }
  process.exit(0) // pulsar-flex keeps timers and sockets
}

main()
