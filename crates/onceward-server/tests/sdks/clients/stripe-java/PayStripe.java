// Stripe's library for Java, with its own retries.

import com.stripe.StripeClient;
import com.stripe.exception.StripeException;
import com.stripe.net.RequestOptions;
import com.stripe.param.PaymentIntentCreateParams;

public class PayStripe {
    private static final StripeClient CLIENT = StripeClient.builder()
        .setApiKey("sk_test_1")
        .setApiBase(System.getenv("BASE"))
        .setConnectTimeout(3000)
        .setReadTimeout(3000)
        .setMaxNetworkRetries(4)
        .build();

    public static void main(String[] arguments) throws StripeException {
        for (String name : new String[] {"cut", "timeout", "lost"}) {
            see(name, () -> pay("order-" + name, 1000, "key-" + name));
        }
        pay("order-changed", 1000, "key-changed");
        see("changed", () -> pay("order-changed", 2000, "key-changed"));
        see("badkey", () -> pay("order-badkey", 1000, "bad,key"));
    }

    private static String pay(String order, long amount, String key) throws StripeException {
        PaymentIntentCreateParams params = PaymentIntentCreateParams.builder()
            .setAmount(amount).setCurrency("eur").putMetadata("order", order).build();
        RequestOptions options = RequestOptions.builder().setIdempotencyKey(key).build();
        return CLIENT.v1().paymentIntents().create(params, options).getId();
    }

    private interface Call {
        String run() throws Exception;
    }

    private static void see(String name, Call call) {
        try {
            System.out.printf("%s\tresult\t%s%n", name, call.run());
        } catch (Exception error) {
            String told = (error.getClass().getName() + ": " + error.getMessage()).replace('\n', ' ');
            System.out.printf("%s\terror\t%.160s%n", name, told);
        }
    }
}
