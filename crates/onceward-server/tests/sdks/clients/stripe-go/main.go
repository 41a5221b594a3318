// Stripe's library for Go, with its own retries.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"
)

func main() {
	client := stripe.NewClient("sk_test_1", stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL:               stripe.String(os.Getenv("BASE")),
		MaxNetworkRetries: stripe.Int64(4),
		HTTPClient:        &http.Client{Timeout: 3 * time.Second},
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
	})))
	pay := func(order string, amount int64, key string) (string, error) {
		params := &stripe.PaymentIntentCreateParams{
			Amount:   stripe.Int64(amount),
			Currency: stripe.String("eur"),
			Metadata: map[string]string{"order": order},
		}
		params.SetIdempotencyKey(key)
		paid, err := client.V1PaymentIntents.Create(context.Background(), params)
		if err != nil {
			return "", err
		}
		return paid.ID, nil
	}
	for _, name := range []string{"cut", "timeout", "lost"} {
		id, err := pay("order-"+name, 1000, "key-"+name)
		see(name, id, err)
	}
	if _, err := pay("order-changed", 1000, "key-changed"); err != nil {
		panic(err)
	}
	id, err := pay("order-changed", 2000, "key-changed")
	see("changed", id, err)
	id, err = pay("order-badkey", 1000, "bad,key")
	see("badkey", id, err)
}

func see(name, id string, err error) {
	if err == nil {
		fmt.Printf("%s\tresult\t%s\n", name, id)
		return
	}
	told := strings.ReplaceAll(fmt.Sprintf("%T: %v", err, err), "\n", " ")
	fmt.Printf("%s\terror\t%.160s\n", name, told)
}
