/* The demo's reports as JSON, one object a line on standard output. The README lists the fields. */
#ifndef DEMO_JSON_LINES_H
#define DEMO_JSON_LINES_H

#include "display.h"

void json_begin(const settings *run, const weights_bundle *sync, const char *url);
void json_step(const step_report *report);
void json_end(const end_report *report);

#endif
