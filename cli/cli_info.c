/* See cli_info.h. */
#include "cli_info.h"

#include "cli_words.h"

static void put_step(cli_json *json, uint64_t step) {
    if (step == XORCAST_NO_STEP)
        cli_json_null(json, "step");
    else
        cli_json_count(json, "step", step);
}

void cli_version_json(cli_json *json, const char *key, const xorcast_version *version) {
    cli_json_open(json, key);
    cli_json_text(json, "run", version->run[0] == '\0' ? NULL : version->run);
    put_step(json, version->step);
    cli_json_text(json, "digest", cli_digest(version->digest).text);
    cli_json_close(json);
}

static double share(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0.0 : (double)part / (double)whole;
}

void cli_info_json(cli_json *json, const xorcast_delta_info *info) {
    const xorcast_counts *counts = &info->counts;
    cli_version_json(json, "base", &info->base);
    cli_version_json(json, "target", &info->target);
    cli_json_count(json, "format_version", info->format_version);
    cli_json_bool(json, "has_files", info->has_files != 0);
    cli_json_text(json, "base_fingerprint", cli_fingerprint(info->base_fingerprint).text);
    cli_json_text(json, "target_fingerprint", cli_fingerprint(info->target_fingerprint).text);
    cli_json_count(json, "bits_changed", counts->bits_changed);
    cli_json_count(json, "bytes_changed", counts->bytes_changed);
    cli_json_count(json, "elements_changed", counts->elements_changed);
    cli_json_count(json, "chunks_changed", counts->chunks_changed);
    cli_json_count(json, "bytes_covered", counts->bytes_covered);
    cli_json_count(json, "elements_covered", counts->elements_covered);
    cli_json_real(json, "bits_changed_share",
                  share(counts->bits_changed, counts->bytes_covered) / 8);
    cli_json_real(json, "bytes_changed_share", share(counts->bytes_changed, counts->bytes_covered));
    cli_json_real(json, "elements_changed_share",
                  share(counts->elements_changed, counts->elements_covered));
    cli_json_count(json, "chunk_bytes", info->chunk_bytes);
    cli_json_count(json, "group_bytes", info->group_bytes);
    cli_json_count(json, "group_count", info->group_count);
    cli_json_count(json, "part_count", info->part_count);
    cli_json_count(json, "delta_bytes", info->delta_bytes);
    cli_json_count(json, "payload_bytes", info->payload_bytes);
    cli_json_count(json, "chunk_encoded_bytes", info->chunk_encoded_bytes);
    cli_json_real(json, "ratio", share(counts->bytes_covered, info->delta_bytes));
    if (info->entropy_bound_bytes > 0)
        cli_json_real(json, "entropy_bound_bytes", info->entropy_bound_bytes);
    else
        cli_json_null(json, "entropy_bound_bytes");
}

static void print_changed(FILE *file, const char *did, const xorcast_delta_info *info) {
    const xorcast_counts *counts = &info->counts;
    fprintf(file, "%s: %s of %s changed (%s), the delta is %s (%s)", did,
            cli_bytes((double)counts->bytes_changed).text,
            cli_bytes((double)counts->bytes_covered).text,
            cli_percent((double)counts->bytes_changed, (double)counts->bytes_covered).text,
            cli_bytes((double)info->delta_bytes).text,
            cli_ratio((double)counts->bytes_covered, (double)info->delta_bytes).text);
    if (info->entropy_bound_bytes > 0)
        fprintf(file, ", entropy bound %s", cli_bytes(info->entropy_bound_bytes).text);
    fputc('\n', file);
}

void cli_info_result(const cli_session *session, FILE *file, const char *event, const char *did,
                     const xorcast_delta_info *info) {
    if (session->options.quiet)
        return;
    if (!session->options.json) {
        print_changed(file, did, info);
        return;
    }
    cli_json json = cli_json_begin(file);
    cli_json_text(&json, "event", event);
    cli_info_json(&json, info);
    cli_json_end(&json);
}

void cli_info_applied(const cli_session *session, const char *event, const char *did,
                      const char *path, const xorcast_delta_info *info) {
    if (session->options.quiet)
        return;
    if (session->options.json) {
        cli_json json = cli_json_begin(stdout);
        cli_json_text(&json, "event", event);
        cli_json_bool(&json, "already_there", info->already == XORCAST_ALREADY_THERE);
        cli_json_bool(&json, "copied", info->already == XORCAST_ALREADY_COPIED);
        cli_info_json(&json, info);
        cli_json_end(&json);
        return;
    }
    if (info->already == XORCAST_ALREADY_NOT) {
        print_changed(stdout, did, info);
        return;
    }
    fputs(info->already == XORCAST_ALREADY_THERE ? "already there: " : "copied: ", stdout);
    cli_put_plain(stdout, path);
    printf(" has the weights that the delta leads to, digest %s; nothing %s\n",
           cli_digest(info->target.digest).text,
           info->already == XORCAST_ALREADY_THERE ? "to write" : "to apply");
}
