/* From the written groups of a version to its parts: planned first, then filled and hashed side by
 * side. */
#ifndef XCI_PARTS_H
#define XCI_PARTS_H

#include "frame/delta_writer.h"
#include "publish/shadow.h"

/* Makes the parts of a form of the version that the shadow is ahead by, whose groups are all
 * whole, and hands them to the writer in order. The groups' records of that form lie in the parts
 * from then on. */
xorcast_status xci_parts_write(xci_shadow *shadow, xci_form form, xci_delta_writer *writer);

#endif
