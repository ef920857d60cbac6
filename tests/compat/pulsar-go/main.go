// Scenarios of Pulsar's Go client and Go admin client: `PASSED|FAILED name seconds text` for each.
//
//	scenarios SERVICE_URL WEB_URL [part of a name...]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
	"github.com/sirupsen/logrus"
)

const timeout = 20 * time.Second
const record = `{"type":"record","name":"P","fields":[{"name":"x","type":"int"}]}`

type point struct {
	X int32 `avro:"x"`
}

type world struct {
	client pulsar.Client
	admin  pulsaradmin.Client
	token  string
}

type scenario struct {
	name string
	run  func(*world)
}

var scenarios = []scenario{
	{"tenants", tenants},
	{"namespaces", namespaces},
	{"namespace_bundles", namespaceBundles},
	{"namespace_properties", namespaceProperties},
	{"topics", topics},
	{"topic_properties", topicProperties},
	{"quota_and_retention", quotaAndRetention},
	{"missing_namespace", missingNamespace},
	{"bytes_schema", bytesSchema},
	{"deleted_schema", deletedSchema},
	{"publisher_metadata", publisherMetadata},
	{"terminated_producer", terminatedProducer},
	{"opened_at_once", openedAtOnce},
	{"failover_partitions", failoverPartitions},
	{"transactions", transactions},
	{"transaction_timeout", transactionTimeout},
}

// --- what they are written with ---

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func equal(found, wanted any) {
	if !reflect.DeepEqual(found, wanted) {
		panic(fmt.Errorf("wanted %v, found %v", wanted, found))
	}
}

func refused(err error, status string) {
	if err == nil || !strings.Contains(err.Error(), "code: "+status) {
		panic(fmt.Errorf("wanted status %s, found %v", status, err))
	}
}

func value[T any](it T) *T { return &it }

func within() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	_ = cancel
	return ctx
}

// A namespace of its own for the scenario.
func (w *world) namespace() string {
	name := "public/" + w.token
	check(w.admin.Namespaces().CreateNamespace(name))
	return name
}

func topicOf(namespace, local string) utils.TopicName {
	return *must(utils.GetTopicName("persistent://" + namespace + "/" + local))
}

func (w *world) producer(options pulsar.ProducerOptions) pulsar.Producer {
	return must(w.client.CreateProducer(options))
}

func (w *world) consumer(options pulsar.ConsumerOptions) pulsar.Consumer {
	options.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	return must(w.client.Subscribe(options))
}

// --- the admin client's creations ---

func tenants(w *world) {
	name := "t" + w.token
	made := utils.TenantData{Name: name, AdminRoles: []string{"r"}, AllowedClusters: []string{"standalone"}}
	check(w.admin.Tenants().Create(made))
	refused(w.admin.Tenants().Create(made), "409")
	made.AdminRoles = []string{"r", "s"}
	check(w.admin.Tenants().Update(made))
	equal(must(w.admin.Tenants().Get(name)).AdminRoles, made.AdminRoles)
	check(w.admin.Tenants().Create(utils.TenantData{Name: name + "x", AllowedClusters: []string{"standalone"}}))
}

func namespaces(w *world) {
	name := w.namespace()
	refused(w.admin.Namespaces().CreateNamespace(name), "409")
	check(w.admin.Namespaces().CreateNsWithPolices(name+"d", *utils.NewDefaultPolicies()))
	policies := *utils.NewDefaultPolicies()
	policies.ReplicationClusters = []string{"standalone"}
	policies.MessageTTLInSeconds = value(77)
	policies.RetentionPolicies = &utils.RetentionPolicies{RetentionTimeInMinutes: 10, RetentionSizeInMB: 20}
	policies.DeduplicationEnabled = value(true)
	policies.MaxProducersPerTopic = value(3)
	policies.SchemaValidationEnforced = true
	policies.SchemaCompatibilityStrategy = utils.SchemaCompatibilityStrategyBackward
	policies.TopicAutoCreationConfig = &utils.TopicAutoCreationConfig{
		Allow: true, Type: "partitioned", Partitions: value(3),
	}
	check(w.admin.Namespaces().CreateNsWithPolices(name+"e", policies))
	found := must(w.admin.Namespaces().GetPolicies(name + "e"))
	equal(*found.MessageTTLInSeconds, 77)
	equal(*found.RetentionPolicies, *policies.RetentionPolicies)
	equal(*found.TopicAutoCreationConfig.Partitions, 3)
	equal(found.SchemaCompatibilityStrategy, policies.SchemaCompatibilityStrategy)
	// The client sends the flag as a text.
	namespace := *must(utils.GetNamespaceName(name))
	check(w.admin.Namespaces().SetEncryptionRequiredStatus(namespace, true))
	equal(must(w.admin.Namespaces().GetPolicies(name)).EncryptionRequired, true)
}

// Apache Pulsar 4.0.8 answers 500 here, over the clusters that the client leaves out.
func namespaceBundles(w *world) {
	name := "public/" + w.token
	check(w.admin.Namespaces().CreateNsWithNumBundles(name, 7))
	equal(must(w.admin.Namespaces().GetPolicies(name)).Bundles.NumBundles, 7)
}

func namespaceProperties(w *world) {
	name := *must(utils.GetNamespaceName(w.namespace()))
	check(w.admin.Namespaces().UpdateProperties(name, map[string]string{"a": "1", "b": "2"}))
	check(w.admin.Namespaces().UpdateProperties(name, map[string]string{"b": "3", "c": "2"}))
	wanted := map[string]string{"a": "1", "b": "3", "c": "2"}
	equal(must(w.admin.Namespaces().GetProperties(name)), wanted)
}

func topics(w *world) {
	namespace := w.namespace()
	for partitions := range 4 {
		topic := topicOf(namespace, fmt.Sprint("t", partitions))
		check(w.admin.Topics().Create(topic, partitions))
		refused(w.admin.Topics().Create(topic, partitions), "409")
		equal(must(w.admin.Topics().GetMetadata(topic)).Partitions, partitions)
	}
	refused(w.admin.Topics().Create(topicOf(namespace, "none"), -1), "406")
	volatile := *must(utils.GetTopicName("non-persistent://" + namespace + "/n"))
	check(w.admin.Topics().Create(volatile, 3))
	check(w.admin.Topics().Update(topicOf(namespace, "t3"), 5))
	refused(w.admin.Topics().Update(topicOf(namespace, "t3"), 2), "422")
	check(w.admin.Topics().Delete(topicOf(namespace, "t3"), true, false))
	check(w.admin.Topics().Delete(topicOf(namespace, "t0"), true, true))
}

func topicProperties(w *world) {
	namespace := w.namespace()
	for partitions := range 3 {
		topic := topicOf(namespace, fmt.Sprint("t", partitions))
		check(w.admin.Topics().CreateWithProperties(topic, partitions, map[string]string{"k": "v"}))
		equal(must(w.admin.Topics().GetProperties(topic)), map[string]string{"k": "v"})
		check(w.admin.Topics().UpdateProperties(topic, map[string]string{"k": "w", "l": "x"}))
		check(w.admin.Topics().RemoveProperty(topic, "k"))
		equal(must(w.admin.Topics().GetProperties(topic)), map[string]string{"l": "x"})
	}
}

func quotaAndRetention(w *world) {
	name := w.namespace()
	retention := utils.RetentionPolicies{RetentionTimeInMinutes: 10, RetentionSizeInMB: 20}
	check(w.admin.Namespaces().SetRetention(name, retention))
	quota := utils.BacklogQuota{LimitSize: 20 << 20, LimitTime: -1, Policy: utils.ProducerRequestHold}
	refused(w.admin.Namespaces().SetBacklogQuota(name, quota, utils.DestinationStorage), "412")
	quota.LimitSize--
	check(w.admin.Namespaces().SetBacklogQuota(name, quota, utils.DestinationStorage))
	retention.RetentionSizeInMB = 19
	refused(w.admin.Namespaces().SetRetention(name, retention), "412")
}

// --- the client ---

func missingNamespace(w *world) {
	w.consumer(pulsar.ConsumerOptions{
		TopicsPattern: "persistent://public/no" + w.token + "/.*", SubscriptionName: "s",
	}).Close()
}

func bytesSchema(w *world) {
	topic := "bytes" + w.token
	schema := pulsar.NewBytesSchema(nil)
	consumer := w.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s", Schema: schema})
	defer consumer.Close()
	for number, producer := range []pulsar.Producer{
		w.producer(pulsar.ProducerOptions{Topic: topic, Schema: schema}),
		w.producer(pulsar.ProducerOptions{Topic: topic}),
	} {
		message := &pulsar.ProducerMessage{Payload: []byte("hello")}
		if number == 0 {
			message = &pulsar.ProducerMessage{Value: []byte("hello")}
		}
		must(producer.Send(within(), message))
		var text []byte
		check(must(consumer.Receive(within())).GetSchemaValue(&text))
		equal(string(text), "hello")
	}
}

func deletedSchema(w *world) {
	topic := "deleted" + w.token
	consumer := w.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"})
	defer consumer.Close()
	producer := w.producer(pulsar.ProducerOptions{Topic: topic, Schema: pulsar.NewAvroSchema(record, nil)})
	must(producer.Send(within(), &pulsar.ProducerMessage{Value: point{5}}))
	message := must(consumer.Receive(within()))
	full := "persistent://public/default/" + topic
	check(w.admin.Schemas().DeleteSchema(full))
	_, err := w.admin.Schemas().GetSchemaInfoByVersion(full, 0)
	refused(err, "404")
	var found point
	if err := message.GetSchemaValue(&found); err == nil || !strings.Contains(err.Error(), "schema not found") {
		panic(fmt.Errorf("a deleted schema was found: %v", err))
	}
}

func publisherMetadata(w *world) {
	topic := "metadata" + w.token
	properties := map[string]string{"app": "a"}
	defer w.producer(pulsar.ProducerOptions{Topic: topic, Properties: properties}).Close()
	stats := must(w.admin.Topics().GetStats(topicOf("public/default", topic)))
	equal(stats.Publishers[0].Metadata, properties)
}

func terminatedProducer(w *world) {
	topic := "terminated" + w.token
	producer := w.producer(pulsar.ProducerOptions{Topic: topic, SendTimeout: timeout})
	must(producer.Send(within(), &pulsar.ProducerMessage{Payload: []byte("x")}))
	must(w.admin.Topics().Terminate(topicOf("public/default", topic)))
	_, err := producer.Send(within(), &pulsar.ProducerMessage{Payload: []byte("y")})
	if !errors.Is(err, pulsar.ErrTopicTerminated) && !errors.Is(err, pulsar.ErrProducerClosed) {
		panic(fmt.Errorf("wanted the topic to be terminated, found %v", err))
	}
}

// A dead letter topic's consumers and producers come at the same moment, and no client made it before.
func openedAtOnce(w *world) {
	for round := range 10 {
		topic := fmt.Sprintf("once%s%d-s-DLQ", w.token, round)
		failures := make(chan error, 6)
		for number := range 6 {
			go func() {
				var err error
				if number%2 == 0 {
					_, err = w.client.Subscribe(pulsar.ConsumerOptions{
						Topic: topic, SubscriptionName: fmt.Sprint("s", number),
					})
				} else {
					_, err = w.client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
				}
				failures <- err
			}()
		}
		for range 6 {
			check(<-failures)
		}
	}
}

// The partitions of which a consumer is the active one, as it was told.
type activity struct {
	sync.Mutex
	active map[int32]bool
}

func (a *activity) BecameActive(_ pulsar.Consumer, _ string, partition int32) { a.set(partition, true) }
func (a *activity) BecameInactive(_ pulsar.Consumer, _ string, partition int32) {
	a.set(partition, false)
}

func (a *activity) set(partition int32, active bool) {
	a.Lock()
	defer a.Unlock()
	a.active[partition] = active
}

func (a *activity) wait(partitions ...int) {
	deadline := time.Now().Add(timeout)
	for {
		var found []int
		a.Lock()
		for partition, active := range a.active {
			if active {
				found = append(found, int(partition))
			}
		}
		a.Unlock()
		sort.Ints(found)
		if reflect.DeepEqual(found, partitions) {
			return
		}
		if time.Now().After(deadline) {
			panic(fmt.Errorf("wanted to be active for %v, was told of %v", partitions, found))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func failoverPartitions(w *world) {
	namespace := w.namespace()
	topic := topicOf(namespace, "t")
	check(w.admin.Topics().Create(topic, 4))
	join := func(name string) (pulsar.Consumer, *activity) {
		listener := &activity{active: map[int32]bool{}}
		return w.consumer(pulsar.ConsumerOptions{
			Topic: topic.String(), SubscriptionName: "s", Type: pulsar.Failover, Name: name, EventListener: listener,
		}), listener
	}
	first, told := join("a")
	told.wait(0, 1, 2, 3)
	second, others := join("b")
	defer second.Close()
	told.wait(0, 2)
	others.wait(1, 3)
	first.Close()
	others.wait(0, 1, 2, 3)
}

// A client with transactions.
func transactional() pulsar.Client {
	return must(pulsar.NewClient(pulsar.ClientOptions{
		URL: os.Args[1], Logger: logger(), OperationTimeout: timeout, EnableTransaction: true,
	}))
}

func next(consumer pulsar.Consumer, wanted string) pulsar.Message {
	message := must(consumer.Receive(within()))
	equal(string(message.Payload()), wanted)
	return message
}

// Each message is copied twice in a transaction with its acknowledgement: the first one is aborted, the second committed.
func transactions(w *world) {
	client := transactional()
	defer client.Close()
	subscribed := func(topic string) pulsar.Consumer {
		return must(client.Subscribe(pulsar.ConsumerOptions{
			Topic: topic, SubscriptionName: "s", Type: pulsar.Shared, EnableBatchIndexAcknowledgment: true,
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		}))
	}
	source, target := "source"+w.token, "target"+w.token
	taker, reader := subscribed(source), subscribed(target)
	defer reader.Close()
	input := must(client.CreateProducer(pulsar.ProducerOptions{Topic: source}))
	output := must(client.CreateProducer(pulsar.ProducerOptions{Topic: target}))
	copied := func(text string, copy string, end func(pulsar.Transaction) error) {
		txn := must(client.NewTransaction(time.Minute))
		equal(txn.GetState(), pulsar.TxnOpen)
		for number := range 3 {
			payload := []byte(fmt.Sprint(copy, number))
			must(output.Send(within(), &pulsar.ProducerMessage{Payload: payload, Transaction: txn}))
		}
		check(taker.AckWithTxn(next(taker, text), txn))
		check(end(txn))
	}
	for round := range 5 {
		text := fmt.Sprint("message", round)
		must(input.Send(within(), &pulsar.ProducerMessage{Payload: []byte(text)}))
		copied(text, "aborted", func(txn pulsar.Transaction) error { return txn.Abort(within()) })
		copied(text, text, func(txn pulsar.Transaction) error { return txn.Commit(within()) })
		for number := range 3 {
			check(reader.Ack(next(reader, fmt.Sprint(text, number))))
		}
	}
	taker.Close()
	must(input.Send(within(), &pulsar.ProducerMessage{Payload: []byte("last")}))
	again := subscribed(source)
	defer again.Close()
	next(again, "last")
}

// The coordinator aborts what nobody ends: then the next message can be read, and the transaction takes no more.
func transactionTimeout(w *world) {
	client := transactional()
	defer client.Close()
	topic := "timeout" + w.token
	reader := must(client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"}))
	defer reader.Close()
	// In batches the client names the last transaction with whatever the producer sends behind it.
	producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true}))
	txn := must(client.NewTransaction(5 * time.Second))
	must(producer.Send(within(), &pulsar.ProducerMessage{Payload: []byte("late"), Transaction: txn}))
	must(producer.Send(within(), &pulsar.ProducerMessage{Payload: []byte("plain")}))
	next(reader, "plain")
	if err := txn.Commit(within()); err == nil {
		panic(errors.New("a transaction was committed whose time was over"))
	}
}

// --- running them ---

func (s scenario) play(client pulsar.Client, admin pulsaradmin.Client) (failure string) {
	defer func() {
		if reason := recover(); reason != nil {
			failure = strings.ReplaceAll(fmt.Sprint(reason), "\n", " ")
		}
	}()
	s.run(&world{client, admin, fmt.Sprintf("%s%d", strings.ReplaceAll(s.name, "_", ""), time.Now().UnixMilli())})
	return ""
}

func logger() log.Logger {
	logger := logrus.New()
	logger.SetOutput(os.Stderr)
	return log.NewLoggerWithLogrus(logger)
}

func main() {
	client := must(pulsar.NewClient(pulsar.ClientOptions{
		URL: os.Args[1], Logger: logger(), OperationTimeout: timeout,
	}))
	admin := must(pulsaradmin.NewClient(&pulsaradmin.Config{WebServiceURL: os.Args[2]}))
	for _, one := range scenarios {
		wanted := len(os.Args) == 3
		for _, word := range os.Args[3:] {
			wanted = wanted || strings.Contains(one.name, word)
		}
		if !wanted {
			continue
		}
		began := time.Now()
		failure := one.play(client, admin)
		verdict := "PASSED"
		if failure != "" {
			verdict = "FAILED"
		}
		fmt.Printf("%s %s %.1f %s\n", verdict, one.name, time.Since(began).Seconds(), failure)
	}
}
