/* xorcast inspect: what a delta says of itself: its versions, counts and sizes, and which codecs
 * its chunks are in. */
#include "cli_choices.h"
#include "cli_commands.h"
#include "cli_device.h"
#include "cli_files.h"
#include "cli_info.h"
#include "cli_words.h"

#include <string.h>

static void line(const char *name) {
    printf("%-12s", name);
}

static void print_version(const char *name, const xorcast_version *version) {
    line(name);
    printf("step %s, digest %s\n", cli_step(version->step).text, cli_digest(version->digest).text);
}

static void print_identity(const char *path, const xorcast_delta_info *info) {
    line("delta");
    cli_put_plain(stdout, path);
    putchar('\n');
    line("format");
    printf("version %u, made from %s\n", info->format_version,
           info->has_files ? "checkpoint files" : "tensors in memory");
    line("run");
    cli_put_plain(stdout, info->target.run[0] == '\0' ? "not given" : info->target.run);
    putchar('\n');
    print_version("base", &info->base);
    print_version("target", &info->target);
    line("layout");
    printf("%s", cli_fingerprint(info->base_fingerprint).text);
    if (memcmp(info->base_fingerprint, info->target_fingerprint, 16) != 0)
        printf(" becomes %s", cli_fingerprint(info->target_fingerprint).text);
    putchar('\n');
}

static void print_counts(const xorcast_counts *counts) {
    const double bytes = (double)counts->bytes_covered;
    line("weights");
    printf("%s in %s elements\n", cli_bytes(bytes).text, cli_count(counts->elements_covered).text);
    line("changed");
    printf("%s bytes (%s)\n", cli_count(counts->bytes_changed).text,
           cli_percent((double)counts->bytes_changed, bytes).text);
    line("");
    printf("%s bits (%s)\n", cli_count(counts->bits_changed).text,
           cli_percent((double)counts->bits_changed, 8 * bytes).text);
    line("");
    printf("%s elements (%s)\n", cli_count(counts->elements_changed).text,
           cli_percent((double)counts->elements_changed, (double)counts->elements_covered).text);
    line("");
    printf("%s chunks\n", cli_count(counts->chunks_changed).text);
}

static void print_sizes(const xorcast_delta_info *info) {
    line("size");
    printf("%s, ratio %s\n", cli_bytes((double)info->delta_bytes).text,
           cli_ratio((double)info->counts.bytes_covered, (double)info->delta_bytes).text);
    line("payload");
    printf("%s, before the second pass %s; groups %s, parts %s\n",
           cli_bytes((double)info->payload_bytes).text,
           cli_bytes((double)info->chunk_encoded_bytes).text, cli_count(info->group_count).text,
           cli_count(info->part_count).text);
    if (info->entropy_bound_bytes > 0) {
        line("bound");
        printf("%s, order 0\n", cli_bytes(info->entropy_bound_bytes).text);
    }
    line("grid");
    printf("chunks of %s bytes in groups of %s\n", cli_count(info->chunk_bytes).text,
           cli_count(info->group_bytes).text);
}

xorcast_status cli_inspect(cli_session *session) {
    const char *path = session->options.operands[0];
    if (session->options.device != (path == NULL))
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "it is either xorcast inspect DELTA or xorcast inspect --device; see "
                        "'xorcast inspect --help'");
    if (session->options.device)
        return cli_device(session);
    xorcast_delta_info info;
    xorcast_delta_choices choices;
    cli_source source;
    CLI_TRY(cli_source_open(session, path, &source));
    xorcast_status status = xorcast_delta_inspect(session->context, &source.source, &info);
    if (status == XORCAST_OK)
        status = xorcast_delta_explain(session->context, &source.source, &choices);
    cli_source_close(&source);
    CLI_TRY(status);
    if (session->options.json) {
        cli_json json = cli_json_begin(stdout);
        cli_json_text(&json, "event", "inspect");
        cli_json_text(&json, "path", path);
        cli_info_json(&json, &info);
        cli_choices_json(&json, &info, &choices);
        cli_json_end(&json);
    } else if (!session->options.quiet) {
        print_identity(path, &info);
        print_counts(&info.counts);
        print_sizes(&info);
        cli_choices_print(&info, &choices);
    }
    return XORCAST_OK;
}
