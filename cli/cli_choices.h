/* What an encoder was told, and what became of the chunks: for inspect. */
#ifndef CLI_CHOICES_H
#define CLI_CHOICES_H

#include "cli_json.h"
#include "xorcast.h"

void cli_choices_print(const xorcast_delta_info *info, const xorcast_delta_choices *choices);
/* Fields "asked" and "choices". */
void cli_choices_json(cli_json *json, const xorcast_delta_info *info,
                      const xorcast_delta_choices *choices);

#endif
