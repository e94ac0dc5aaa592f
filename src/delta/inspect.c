/* Identity and sizes of a delta, from its manifest alone. */
#include "frame/delta_reader.h"

xorcast_status xorcast_delta_inspect(xorcast_context *context, const xorcast_source *source,
                                     xorcast_delta_info *info_out) {
    xci_delta_reader reader;
    TRY(xci_delta_reader_open(context, source, &reader));
    *info_out = reader.manifest.info;
    xci_delta_reader_close(&reader);
    return XORCAST_OK;
}
