/* Reports as JSON lines. All strings that are written are the demo's own, without anything to
 * escape, but for the name of a GPU. */
#include "json_lines.h"

#include <math.h>
#include <stdio.h>

static void print_stamp(const char *name, const stamp *version) {
    (void)printf("\"%s\":{\"step\":%llu,\"digest\":\"%016llx%016llx\"}", name,
                 (unsigned long long)version->step, (unsigned long long)version->digest[0],
                 (unsigned long long)version->digest[1]);
}

/* Without what JSON would have escaped; no GPU has such a name. */
static void print_name(const char *name) {
    for (; *name != 0; name++)
        if (*name >= ' ' && *name != '"' && *name != '\\')
            (void)putchar(*name);
}

void json_begin(const settings *run, const weights_bundle *sync, const char *url) {
    const exported *weights = sync->weights;
    (void)printf("{\"type\":\"begin\",\"dtype\":\"%s\",\"seed\":%llu,\"steps\":%llu,"
                 "\"warmup_steps\":%llu,\"warmup_rate\":%g,\"rl_rate\":%g,\"samplers\":%d,"
                 "\"parameters\":%zu,\"tensors\":%zu,\"full_bytes\":%zu,\"url\":\"%s\","
                 "\"backend\":\"%s\",\"device\":\"",
                 export_format_name(run->format), (unsigned long long)run->seed,
                 (unsigned long long)run->steps, (unsigned long long)run->warmup_steps,
                 run->warmup_rate, run->rl_rate, SAMPLERS, weights->table.value_count,
                 weights->tensor_count, weights->total_bytes, url, run->backend);
    print_name(sync->device.name);
    (void)printf("\"}\n");
    (void)fflush(stdout);
}

static void print_sampler(const sampler_report *sampler) {
    const synced_message *synced = &sampler->synced;
    (void)printf("{\"pid\":%llu,", (unsigned long long)sampler->pid);
    print_stamp("rollouts_from", &sampler->drawn_from);
    (void)printf(",");
    print_stamp("synced", &synced->version);
    (void)printf(",\"wire_bytes\":%llu,\"follow_ns\":%llu,\"overlap_ns\":%llu,\"ship_ns\":%llu,"
                 "\"stage_ns\":%llu,\"commit_ns\":%llu,\"pause_ns\":%llu,\"load_ns\":%llu}",
                 (unsigned long long)synced->wire_bytes, (unsigned long long)synced->follow_ns,
                 (unsigned long long)synced->overlap_ns, (unsigned long long)synced->ship_ns,
                 (unsigned long long)synced->stage_ns, (unsigned long long)synced->commit_ns,
                 (unsigned long long)synced->pause_ns, (unsigned long long)synced->load_ns);
}

void json_step(const step_report *report) {
    (void)printf("{\"type\":\"step\",\"step\":%llu,\"phase\":\"%s\",\"rate\":%g,\"reward\":%.9g,"
                 "\"bits_changed_percent\":%.6g,\"bytes_changed_percent\":%.6g,"
                 "\"elements_changed_percent\":%.6g,\"bytes_changed\":%llu,\"full_bytes\":%llu,"
                 "\"wire_bytes\":%llu,\"ratio\":%.6g,\"entropy_bound_bytes\":%.6g,"
                 "\"learn_ns\":%llu,\"encode_ns\":%llu,\"publish_ns\":%llu,\"store_ns\":%llu,",
                 (unsigned long long)report->step, report->warmup ? "warmup" : "rl", report->rate,
                 report->reward, report->bits_percent, report->bytes_percent,
                 report->elements_percent, (unsigned long long)report->bytes_changed,
                 (unsigned long long)report->full_bytes, (unsigned long long)report->wire_bytes,
                 report->wire_bytes == 0 ? 0.0
                                         : (double)report->full_bytes / (double)report->wire_bytes,
                 report->bound_bytes, (unsigned long long)report->learn_ns,
                 (unsigned long long)report->encode_ns, (unsigned long long)report->publish_ns,
                 (unsigned long long)report->store_ns);
    print_stamp("version", &report->version);
    (void)printf(",\"samplers\":[");
    for (size_t i = 0; i < SAMPLERS; i++) {
        if (i > 0)
            (void)printf(",");
        print_sampler(&report->samplers[i]);
    }
    (void)printf("]}\n");
    (void)fflush(stdout);
}

static void print_reward(const char *key, double reward) {
    if (isnan(reward))
        (void)printf(",\"%s\":null", key);
    else
        (void)printf(",\"%s\":%.9g", key, reward);
}

void json_end(const end_report *report) {
    (void)printf("{\"type\":\"end\",\"equal\":%s,\"full_bytes\":%llu,\"sampler_bytes_equal\":[",
                 report->equal ? "true" : "false", (unsigned long long)report->full_bytes);
    for (size_t i = 0; i < SAMPLERS; i++)
        (void)printf("%s%llu", i > 0 ? "," : "",
                     (unsigned long long)report->sampler_bytes_equal[i]);
    (void)printf("],\"versions\":%llu,\"rollouts_recomputed\":%llu,\"reward_window\":%llu",
                 (unsigned long long)report->versions, (unsigned long long)report->rollouts_checked,
                 (unsigned long long)report->reward_window);
    print_reward("first_reward", report->first_reward);
    print_reward("rl_first_reward", report->rl_reward);
    print_reward("last_reward", report->last_reward);
    (void)printf(",\"seconds\":%.3f}\n", (double)report->seconds_ns / 1e9);
    (void)fflush(stdout);
}
