/* A delta into a bundle in memory, without a link: stage, then commit. Weights whose version nobody
 * tracks are scanned whole first, so that a delta never lands on bytes that are not its base. */
#include "base/clock.h"
#include "delta/scan.h"
#include "subscribe/commit.h"
#include "subscribe/device_commits.h"

static xorcast_status check_bundle(xorcast_bundle *bundle) {
    TRY(xci_bundle_need_sealed(bundle));
    if (!bundle->complete)
        FAIL(bundle->context, XORCAST_UNSUPPORTED,
             "this bundle has boxes that leave holes; a subscriber can follow with it");
    return XORCAST_OK;
}

static xorcast_status stage_checked(xci_stage *stage, const xorcast_source *source) {
    xorcast_digest digest;
    TRY(xci_bundle_scan(stage->bundle, NULL, &digest));
    return xci_stage_source(stage, source, &digest);
}

xorcast_status xorcast_delta_check(xorcast_bundle *bundle, const xorcast_source *source,
                                   xorcast_delta_info *info_out) {
    xci_stage stage;
    TRY(check_bundle(bundle));
    TRY(xci_stage_open(&stage, bundle));
    const xorcast_status status = stage_checked(&stage, source);
    const xorcast_delta_info info = stage.info;
    xci_stage_close(&stage);
    TRY(status);
    if (info_out != NULL)
        *info_out = info;
    return XORCAST_OK;
}

static xorcast_status commit_staged(const xci_stage *stage) {
    xci_commit commit;
    TRY(xci_commit_open(&commit, stage->bundle, NULL));
    xorcast_status status = xci_commit_prepare(&commit, stage);
    if (status == XORCAST_OK)
        status = xci_commit_apply(&commit);
    xci_commit_close(&commit);
    return status;
}

static xorcast_status commit_on_device(const xci_stage *stage) {
    xci_device_commits commit;
    uint64_t pause_ns;
    TRY(xci_device_commits_open(&commit, stage->bundle));
    xorcast_status status = xci_device_commits_prepare(&commit, stage);
    if (status == XORCAST_OK)
        status = xci_device_commits_apply(&commit, NULL);
    if (status == XORCAST_OK)
        status = xci_device_commits_wait(&commit, XCI_FOREVER, &pause_ns);
    xci_device_commits_close(&commit);
    return status;
}

xorcast_status xorcast_delta_apply(xorcast_bundle *bundle, const xorcast_source *source,
                                   xorcast_delta_info *info_out) {
    xci_stage stage;
    TRY(check_bundle(bundle));
    for (uint64_t t = 0; t < bundle->tensor_count; t++)
        if (bundle->tensors[t].region_count > 0 &&
            bundle->tensors[t].regions[0].kind > XCI_KIND_DEVICE)
            FAIL(bundle->context, XORCAST_UNSUPPORTED,
                 "tensor %s lies in a file; xorcast_checkpoint_apply changes checkpoints",
                 bundle->tensors[t].name);
    TRY(xci_stage_open(&stage, bundle));
    xorcast_status status = stage_checked(&stage, source);
    if (status == XORCAST_OK)
        status = bundle->on_device ? commit_on_device(&stage) : commit_staged(&stage);
    const xorcast_delta_info info = stage.info;
    xci_stage_close(&stage);
    TRY(status);
    if (info_out != NULL)
        *info_out = info;
    return XORCAST_OK;
}
