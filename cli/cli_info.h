/* What is known of a delta, in JSON and in lines for people. Owns nothing. */
#ifndef CLI_INFO_H
#define CLI_INFO_H

#include "cli_session.h"

/* Members of the open object: versions, counts, sizes. */
void cli_info_json(cli_json *json, const xorcast_delta_info *info);
void cli_version_json(cli_json *json, const char *key, const xorcast_version *version);

/* The end of diff and fold: one line or object on `file`; nothing when quiet. `event` is the
 * command's word for JSON, `did` the beginning of the line: "wrote d.xcd". */
void cli_info_result(const cli_session *session, FILE *file, const char *event, const char *did,
                     const xorcast_delta_info *info);

/* The end of apply and check, on standard output. A target that was there already gets a line of
 * its own, with `path`, which was the target; JSON has already_there and copied. */
void cli_info_applied(const cli_session *session, const char *event, const char *did,
                      const char *path, const xorcast_delta_info *info);

#endif
