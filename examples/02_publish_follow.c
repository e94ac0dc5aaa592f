/* A trainer publishes every step over TCP; a sampler that starts with other weights follows it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xorcast.h>

enum { STEPS = 5, ELEMENTS = 1 << 20 };
static uint16_t weights[ELEMENTS];
static xorcast_context *context;

static void check(xorcast_status status) {
    xorcast_error error;
    if (status != XORCAST_OK) {
        xorcast_last_error(context, &error);
        fprintf(stderr, "%s: %s\n", xorcast_status_name(status), error.text);
        exit(xorcast_status_exit_code(status));
    }
}

static xorcast_bundle *describe_weights(void) {
    static const uint64_t shape[] = {ELEMENTS};
    xorcast_bundle *bundle;
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    tensor.name = "weight";
    tensor.dtype = "BF16";
    tensor.shape = shape;
    tensor.rank = 1;
    tensor.bytes = sizeof weights;
    tensor.data = weights;
    check(xorcast_context_create(NULL, &context));
    check(xorcast_bundle_create(context, NULL, &bundle));
    check(xorcast_bundle_add(bundle, &tensor));
    check(xorcast_bundle_seal(bundle, NULL));
    return bundle;
}

static void optimizer_step(uint64_t step) {
    for (uint64_t i = step; i < ELEMENTS; i += 499)
        weights[i] ^= 1;
}

static void train(xorcast_publisher *publisher) {
    for (uint64_t step = 1; step <= STEPS; step++) {
        optimizer_step(step);
        check(xorcast_publisher_begin(publisher, step));
        check(xorcast_publisher_put(publisher, 0, NULL, NULL)); /* all tensors, where they lie */
        check(xorcast_publisher_finish(publisher, NULL));       /* samplers see it from now on */
    }
}

static void follow(xorcast_subscriber *subscriber) {
    xorcast_version now = {.step = 0};
    for (uint64_t step; now.step != STEPS; xorcast_subscriber_current(subscriber, &now)) {
        xorcast_status status = xorcast_subscriber_poll(subscriber, 30000, &step);
        if (status == XORCAST_OK)
            status = xorcast_subscriber_stage(subscriber, step, 30000);
        if (status == XORCAST_NOTHING_NEW || status == XORCAST_LINK_DOWN ||
            status == XORCAST_LINK_REFUSED || status == XORCAST_TIMED_OUT)
            continue; /* or the trainer is away: generate on */
        if (status == XORCAST_VERSION_GONE || status == XORCAST_BASE_MISMATCH) {
            check(xorcast_subscriber_keyframe(subscriber, 30000)); /* overwrites: a pause too */
            continue;
        }
        check(status); /* another run: the trainer began anew, so open a subscriber again */
        check(xorcast_subscriber_commit(subscriber, NULL)); /* the pause: XOR in place */
        check(xorcast_subscriber_wait(subscriber, 30000));  /* the weights are `step` now */
    }
}

int main(void) {
    int ends[2], status = 0;
    char url[128] = "";
    xorcast_digest sum;
    xorcast_publisher *publisher = NULL;
    xorcast_subscriber *subscriber = NULL;
    const pid_t sampler = pipe(ends) == 0 ? fork() : -1;
    xorcast_bundle *bundle = describe_weights();
    if (sampler == 0) {
        if (close(ends[1]) != 0 || read(ends[0], url, sizeof url - 1) <= 0)
            return 1;
        check(xorcast_subscriber_open(bundle, url, NULL, &subscriber));
        follow(subscriber);
    } else {
        optimizer_step(0);
        check(xorcast_publisher_open(bundle, "tcp:127.0.0.1:0", NULL, &publisher));
        dprintf(ends[1], "%s", xorcast_publisher_url(publisher));
        train(publisher);
    }
    check(xorcast_bundle_digest(bundle, &sum)); /* from a full read */
    printf("digest %016" PRIx64 " %016" PRIx64 "\n", sum.lane[0], sum.lane[1]);
    waitpid(sampler, &status, 0); /* the sampler has no child: it does not wait */
    xorcast_subscriber_close(subscriber);
    xorcast_publisher_close(publisher);
    xorcast_bundle_destroy(bundle);
    xorcast_context_destroy(context);
    return status != 0;
}
