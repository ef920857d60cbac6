// Clients for Go log in: franz-go (Kafka) and pulsar-client-go with its admin client.
//
//	logins LOGINS [part of an id...]
//
// One line for each login: SEEN client::mechanism::case seconds what.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/admin/config"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/rest"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
	"github.com/sirupsen/logrus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	letIn    = "let in"
	patience = 30 * time.Second
	// Of a client that tries again for ever.
	refusedAfter = 3 * time.Second
)

type login map[string]string

func main() {
	text, err := os.ReadFile(os.Args[1])
	check(err)
	var logins struct{ Kafka, Pulsar []login }
	check(json.Unmarshal(text, &logins))
	var both sync.WaitGroup
	both.Add(2)
	go func() {
		defer both.Done()
		for _, one := range logins.Kafka {
			attempt("franz-go", one, byKafka)
		}
	}()
	go func() {
		defer both.Done()
		for _, one := range logins.Pulsar {
			attempt("pulsar-client-go", one, byPulsar)
			if one["mechanism"] != "basic" { // which the admin client does not have
				attempt("pulsaradmin-go", one, byAdmin)
			}
		}
	}()
	both.Wait()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func wanted(id string) bool {
	for _, word := range os.Args[2:] {
		if strings.Contains(id, word) {
			return true
		}
	}
	return len(os.Args) == 2
}

func attempt(client string, one login, try func(login, string) error) {
	id := client + "::" + one["mechanism"] + "::" + one["case"]
	if !wanted(id) {
		return
	}
	began := time.Now()
	what := letIn
	if err := try(one, id); err != nil {
		what = name(err)
		fmt.Fprintln(os.Stderr, id, err)
	}
	fmt.Printf("SEEN %s %.1f %s\n", id, time.Since(began).Seconds(), what)
}

// An error by what a program can tell it by: Kafka's code, Pulsar's result, else what is at the bottom of it.
func name(err error) string {
	var kafka *kerr.Error
	var of *pulsar.Error
	var unknown x509.UnknownAuthorityError
	var alert tls.AlertError
	var refused rest.Error
	switch {
	case errors.As(err, &kafka):
		return kafka.Message
	case errors.As(err, &unknown):
		return "x509.UnknownAuthorityError"
	case errors.As(err, &alert):
		return "tls.AlertError: " + strings.TrimPrefix(alert.Error(), "tls: ")
	case errors.As(err, &of):
		return fmt.Sprintf("pulsar.Error %s", resultOf(of))
	case errors.As(err, &refused):
		return fmt.Sprintf("rest.Error %d", refused.Code)
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return strings.ReplaceAll(err.Error(), "\n", ", ")
}

// Its result has a name at the end of its text only.
func resultOf(err *pulsar.Error) string {
	text := err.Error()
	return text[strings.LastIndex(text, " ")+1:]
}

func tlsOf(one login) *tls.Config {
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(must(os.ReadFile(one["ca"])))
	config := &tls.Config{RootCAs: trusted}
	if one["certificate"] != "" {
		config.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(one["certificate"], one["key"]))}
	}
	return config
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

// --- franz-go ---

func mechanism(one login) (sasl.Mechanism, error) {
	secret := scram.Auth{User: one["user"], Pass: one["password"]}
	switch {
	case one["mechanism"] == "delegation-token":
		return delegationToken(one)
	case one["sasl"] == "PLAIN":
		return plain.Auth{User: one["user"], Pass: one["password"]}.AsMechanism(), nil
	case one["sasl"] == "SCRAM-SHA-256":
		return secret.AsSha256Mechanism(), nil
	case one["sasl"] == "SCRAM-SHA-512":
		return secret.AsSha512Mechanism(), nil
	case one["sasl"] == "OAUTHBEARER":
		return oauth.Auth{Token: one["token"]}.AsMechanism(), nil
	}
	return nil, nil
}

// Made by the owner's password; the wrong one is another secret for the same token.
func delegationToken(one login) (sasl.Mechanism, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(one["address"]),
		kgo.DialTLSConfig(tlsOf(one)),
		kgo.SASL(plain.Auth{User: one["user"], Pass: one["password"]}.AsMechanism()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	made, err := kadm.NewClient(client).CreateDelegationToken(ctx, kadm.CreateDelegationToken{})
	if err != nil {
		return nil, err
	}
	secret := scram.Auth{User: made.TokenID, Pass: base64.StdEncoding.EncodeToString(made.HMAC), IsToken: true}
	if one["case"] == "wrong" {
		secret.Pass = "bm90IGhlcnM="
	}
	return secret.AsSha256Mechanism(), nil
}

func byKafka(one login, value string) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(one["address"]),
		kgo.DialTLSConfig(tlsOf(one)),
		kgo.DefaultProduceTopic(one["topic"]),
	}
	found, err := mechanism(one)
	if err != nil {
		return err
	}
	if found != nil {
		options = append(options, kgo.SASL(found))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patienceFor(one))
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	sent := client.ProduceSync(ctx, kgo.StringRecord(value))
	if err := sent.FirstErr(); err != nil {
		return err
	}
	from := map[int32]kgo.Offset{0: kgo.NewOffset().At(sent[0].Record.Offset)}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{one["topic"]: from})
	fetched := client.PollRecords(ctx, 1)
	if err := fetched.Err(); err != nil {
		return err
	}
	return same(string(fetched.Records()[0].Value), value)
}

func same(found, value string) error {
	if found != value {
		return fmt.Errorf("found %q", found)
	}
	return nil
}

func patienceFor(one login) time.Duration {
	if one["case"] == "right" {
		return patience
	}
	return refusedAfter
}

// --- pulsar-client-go ---

func authentication(one login) pulsar.Authentication {
	switch one["mechanism"] {
	case "token", "TLS":
		return pulsar.NewAuthenticationToken(one["token"])
	case "mTLS":
		return pulsar.NewAuthenticationTLS(one["certificate"], one["key"])
	case "basic":
		return must(pulsar.NewAuthenticationBasic(one["user"], one["password"]))
	}
	return pulsar.NewAuthenticationOAuth2(oauth2(one))
}

func oauth2(one login) map[string]string {
	return map[string]string{
		"type":       "client_credentials",
		"issuerUrl":  one["issuer"],
		"audience":   one["audience"],
		"privateKey": "file://" + one["credentials"],
		"clientId":   one["client_id"],
	}
}

func byPulsar(one login, value string) error {
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:                   one["url"],
		Authentication:        authentication(one),
		TLSTrustCertsFilePath: one["ca"],
		TLSValidateHostname:   true,
		OperationTimeout:      patienceFor(one),
		Logger:                log.NewLoggerWithLogrus(silent),
	})
	if err != nil {
		return err
	}
	defer client.Close()
	reader, err := client.CreateReader(pulsar.ReaderOptions{Topic: one["topic"], StartMessageID: pulsar.LatestMessageID()})
	if err != nil {
		return err
	}
	defer reader.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: one["topic"]})
	if err != nil {
		return err
	}
	defer producer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte(value)}); err != nil {
		return err
	}
	for { // others write to this topic at the same time
		found, err := reader.Next(ctx)
		if err != nil || string(found.Payload()) == value {
			return err
		}
	}
}

func byAdmin(one login, _ string) error {
	settings := &config.Config{WebServiceURL: one["web"], TLSTrustCertsFilePath: one["ca"]}
	switch one["mechanism"] {
	case "token", "TLS":
		settings.Token = one["token"]
	case "mTLS":
		settings.TLSCertFile, settings.TLSKeyFile = one["certificate"], one["key"]
		settings.AuthPlugin = "org.apache.pulsar.client.impl.auth.AuthenticationTls"
		settings.AuthParams = fmt.Sprintf("tlsCertFile:%s,tlsKeyFile:%s", one["certificate"], one["key"])
	case "oauth2":
		settings.IssuerEndpoint, settings.ClientID = one["issuer"], one["client_id"]
		settings.Audience, settings.KeyFile = one["audience"], one["credentials"]
		settings.WebServiceURL = one["http"] // its OAuth 2 does not look at the authorities that are to be trusted
		settings.AuthPlugin = "org.apache.pulsar.client.impl.auth.oauth2.AuthenticationOAuth2"
	}
	admin, err := pulsaradmin.NewClient(settings)
	if err != nil {
		return err
	}
	topic := must(utils.GetTopicName(one["topic"]))
	_, err = admin.Topics().GetPartitionedStats(*topic, false)
	return err
}
