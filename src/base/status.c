/* Names, remedies, texts and exit codes of statuses, all from the one table in xorcast.h. */
#include "xorcast.h"

typedef struct status_row {
    xorcast_status status;
    const char *name, *remedy, *text;
    int exit_code;
} status_row;

static const status_row status_rows[] = {
#define STATUS_ROW(name, value, remedy, code, text) {XORCAST_##name, #name, remedy, text, code},
    XORCAST_STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

static const status_row unknown_row = {XORCAST_INTERNAL, "UNKNOWN", "REPORT",
                                       "not a status of this library", 70};

static const status_row *find_row(xorcast_status status) {
    for (size_t i = 0; i < sizeof status_rows / sizeof *status_rows; i++)
        if (status_rows[i].status == status)
            return &status_rows[i];
    return &unknown_row;
}

uint32_t xorcast_library_version(void) { return XORCAST_VERSION_NUMBER; }
const char *xorcast_status_name(xorcast_status status) { return find_row(status)->name; }
const char *xorcast_status_remedy(xorcast_status status) { return find_row(status)->remedy; }
const char *xorcast_status_text(xorcast_status status) { return find_row(status)->text; }
int xorcast_status_exit_code(xorcast_status status) { return find_row(status)->exit_code; }
