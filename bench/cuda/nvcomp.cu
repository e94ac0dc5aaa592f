/* Ours beside nvCOMP's LZ4 on the same masks, in one run: nvCOMP needs the mask formed by a kernel
 * before it compresses, and written out by its decompression before a dense XOR. It works in
 * pieces, since mask, worst-case output and its scratch would not fit beside two versions. Both
 * results are compared with the new weights. One JSON line a row; medians. Where the library is
 * not found a row says SKIPPED, and why.
 *
 *     nvcomp [--bytes 55.6e9] [--rounds 11] [--type 0|3|5]
 *
 * --type: what nvCOMP is told of the data: bytes, or numbers of 2 or 4 bytes. XORCAST_NVCOMP may
 * name the library. */
#include "cuda/arguments.h"
#include "cuda/cycle.cuh"
#include "cuda/nvcomp_lz4.cuh"
#include "cuda/read_bound.cuh"

#define CHUNK (64u << 10)
#define PIECE_CHUNKS 65536u
#define PIECE_BYTES ((uint64_t)CHUNK * PIECE_CHUNKS)

static __global__ void k_xor(const uint4 *a, const uint4 *b, uint4 *out, uint64_t count) {
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const uint4 x = a[i], y = b[i];
        out[i] = make_uint4(x.x ^ y.x, x.y ^ y.y, x.z ^ y.z, x.w ^ y.w);
    }
}

static void do_xor(const uint8_t *a, const uint8_t *b, uint8_t *out, uint64_t bytes) {
    k_xor<<<132 * 8, 512>>>((const uint4 *)a, (const uint4 *)b, (uint4 *)out, bytes / 16);
}

/* Buffers and tables of a piece, and what is kept of all pieces: compressed chunks, packed. */
struct opponent {
    nvcomp_lz4 calls;
    nvcomp_compress_options compress;
    nvcomp_decompress_options decompress;
    size_t out_bytes, compress_temp_bytes, decompress_temp_bytes;
    uint8_t *mask, *out, *temp;
    void **mask_at, **out_at;
    size_t *mask_bytes, *got_bytes;
    int *statuses;
    struct piece {
        size_t count;
        void **at;
        size_t *bytes;
    };
    std::vector<piece> pieces;
    uint64_t kept_bytes, block_bytes; /* with and without what aligns each */
};

static void must(int status, const char *what) {
    if (status == 0)
        return;
    fprintf(stderr, "nvcomp: %s failed: %d\n", what, status);
    exit(1);
}

static void open_opponent(opponent *o, int type) {
    o->compress.data_type = o->decompress.data_type = type;
    must(o->calls.compress_temp(PIECE_CHUNKS, CHUNK, o->compress, &o->compress_temp_bytes,
                                PIECE_BYTES, nullptr),
         "size of scratch");
    must(o->calls.decompress_temp(PIECE_CHUNKS, CHUNK, o->decompress, &o->decompress_temp_bytes,
                                  PIECE_BYTES, nullptr),
         "size of scratch");
    must(o->calls.compress_bound(CHUNK, o->compress, &o->out_bytes), "size of output");
    o->out_bytes = (o->out_bytes + 15) / 16 * 16;
    o->mask = device_array<uint8_t>(PIECE_BYTES);
    o->out = device_array<uint8_t>(o->out_bytes * PIECE_CHUNKS);
    o->temp = device_array<uint8_t>(std::max(o->compress_temp_bytes, o->decompress_temp_bytes));
    std::vector<void *> mask_at, out_at;
    for (size_t i = 0; i < PIECE_CHUNKS; ++i) {
        mask_at.push_back(o->mask + i * CHUNK);
        out_at.push_back(o->out + i * o->out_bytes);
    }
    o->mask_at = to_device(mask_at);
    o->out_at = to_device(out_at);
    o->mask_bytes = to_device(std::vector<size_t>(PIECE_CHUNKS, CHUNK));
    o->got_bytes = device_array<size_t>(PIECE_CHUNKS);
    o->statuses = device_array<int>(PIECE_CHUNKS);
}

static void close_opponent(opponent *o) {
    for (void *at :
         {(void *)o->mask, (void *)o->out, (void *)o->temp, (void *)o->mask_at, (void *)o->out_at,
          (void *)o->mask_bytes, (void *)o->got_bytes, (void *)o->statuses})
        CUDA(cudaFree(at));
}

static void drop_pieces(opponent *o) {
    for (const opponent::piece &piece : o->pieces) {
        CUDA(cudaFree(piece.at));
        CUDA(cudaFree(piece.bytes));
    }
    o->pieces.clear();
    o->kept_bytes = o->block_bytes = 0;
}

static void check_statuses(const opponent *o, size_t count, const char *what) {
    for (int status : to_host(o->statuses, count))
        must(status, what);
}

/* Compressed chunks of this piece to the end of those kept, in `room`. */
static void keep_piece(opponent *o, size_t count, uint8_t *room, uint64_t capacity) {
    const std::vector<size_t> sizes = to_host(o->got_bytes, count);
    std::vector<xci_cuda_move> moves;
    std::vector<void *> at;
    for (size_t i = 0; i < count; ++i) {
        moves.push_back({o->out + i * o->out_bytes, room + o->kept_bytes, sizes[i]});
        at.push_back(room + o->kept_bytes);
        o->kept_bytes += (sizes[i] + 15) / 16 * 16;
        o->block_bytes += sizes[i];
    }
    must(o->kept_bytes > capacity, "room for what is compressed");
    xci_cuda_move *const moves_at = to_device(moves);
    CUDA(xci_cuda_copy_many(moves_at, count, nullptr));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaFree(moves_at));
    o->pieces.push_back({count, to_device(at), to_device(sizes)});
}

struct opponent_times {
    double mask_ms, compress_ms, decompress_ms, xor_ms;
};

/* Forms and compresses the mask of everything. */
static void send(opponent *o, const version_pair &p, uint64_t bytes, opponent_times *times) {
    drop_pieces(o);
    for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
        const uint64_t some = std::min(PIECE_BYTES, bytes - at);
        const size_t count = some / CHUNK;
        times->mask_ms +=
            once_ms([&] { do_xor(p.old_bytes + at, p.new_bytes + at, o->mask, some); });
        times->compress_ms += once_ms([&] {
            must(o->calls.compress(o->mask_at, o->mask_bytes, CHUNK, count, o->temp,
                                   o->compress_temp_bytes, o->out_at, o->got_bytes, o->compress,
                                   o->statuses, nullptr),
                 "compress");
        });
        check_statuses(o, count, "compress");
        keep_piece(o, count, p.packed, p.capacity);
    }
}

/* Decompresses everything into masks and XORs these into the old weights. */
static void receive(opponent *o, const version_pair &p, opponent_times *times) {
    uint64_t at = 0;
    for (const opponent::piece &piece : o->pieces) {
        const uint64_t some = piece.count * CHUNK;
        times->decompress_ms += once_ms([&] {
            must(o->calls.decompress(piece.at, piece.bytes, o->mask_bytes, o->got_bytes,
                                     piece.count, o->temp, o->decompress_temp_bytes, o->mask_at,
                                     o->decompress, o->statuses, nullptr),
                 "decompress");
        });
        times->xor_ms +=
            once_ms([&] { do_xor(p.old_bytes + at, o->mask, p.old_bytes + at, some); });
        check_statuses(o, piece.count, "decompress");
        at += some;
    }
}

static void measure_opponent(opponent *o, const version_pair &p, const model &m, unsigned rounds) {
    std::vector<double> mask, compress, decompress, dense, pause;
    bool right = true;
    for (unsigned i = 0; i <= rounds; ++i) {
        opponent_times t = {}, back = {};
        send(o, p, m.bytes, &t);
        receive(o, p, &t);
        right = right && versions_equal(p, m.bytes);
        receive(o, p, &back);
        right = right && !versions_equal(p, m.bytes);
        mask.push_back(t.mask_ms);
        compress.push_back(t.compress_ms);
        decompress.push_back(t.decompress_ms);
        dense.push_back(t.xor_ms);
        pause.push_back(t.decompress_ms + t.xor_ms);
    }
    printf("{\"bench\":\"nvcomp\",\"who\":\"nvcomp\",\"weights\":\"%s\",\"bytes\":%llu,"
           "\"type\":%d,\"right\":%s,\"block_bytes\":%llu,\"scratch_bytes\":%llu,"
           "\"piece_bytes\":%llu,\"mask_ms\":%.3f,\"compress_ms\":%.3f,\"compress_gb_s\":%.0f,"
           "\"decompress_ms\":%.3f,\"decompress_gb_s\":%.0f,\"xor_ms\":%.3f,\"pause_ms\":%.3f}\n",
           m.name, (unsigned long long)m.bytes, o->compress.data_type, right ? "true" : "false",
           (unsigned long long)o->block_bytes,
           (unsigned long long)(o->compress_temp_bytes + PIECE_BYTES + o->out_bytes * PIECE_CHUNKS),
           (unsigned long long)PIECE_BYTES, median(mask), median(compress),
           1e-6 * (double)m.bytes / median(compress), median(decompress),
           1e-6 * (double)m.bytes / median(decompress), median(dense), median(pause));
    fflush(stdout);
    drop_pieces(o);
}

static void measure_ours(const version_pair &p, const model &m, unsigned rounds) {
    cycle c = open_cycle(p, m);
    const cycle_times t = run_cycle(&c, rounds);
    const double bound = read_bound_ms(p.old_bytes, p.new_bytes, m.bytes, rounds);
    printf("{\"bench\":\"nvcomp\",\"who\":\"xorcast\",\"weights\":\"%s\",\"bytes\":%llu,"
           "\"right\":%s,\"block_bytes\":%llu,\"scratch_bytes\":%llu,\"read_both_ms\":%.3f,"
           "\"encode_ms\":%.3f,\"encode_of_bound\":%.3f,\"encode_gb_s\":%.0f,\"check_ms\":%.3f,"
           "\"prepare_ms\":%.3f,\"pause_ms\":%.3f}\n",
           m.name, (unsigned long long)m.bytes, t.right ? "true" : "false",
           (unsigned long long)c.packed_bytes, (unsigned long long)c.encode.scratch_bytes, bound,
           t.encode_ms, bound / t.encode_ms, 1e-6 * (double)m.bytes / t.encode_ms, t.check_ms,
           t.prepare_ms, t.commit_ms);
    fflush(stdout);
    close_cycle(&c);
}

int main(int argc, char **argv) {
    uint64_t bytes = 55600000000;
    unsigned rounds = 11;
    unsigned type = 0;
    const argument options[] = {{"--bytes", ARGUMENT_BYTES, &bytes},
                                {"--rounds", ARGUMENT_COUNT, &rounds},
                                {"--type", ARGUMENT_COUNT, &type}};
    read_options(argc, argv, options, 3);
    bytes = bytes / CHUNK * CHUNK;
    opponent o = {};
    char why[300];
    const bool found = load_nvcomp(&o.calls, why, sizeof why);
    const version_pair p = make_pair(bytes, bytes / 16 + (64u << 20));
    if (found)
        open_opponent(&o, (int)type);
    else
        printf("{\"bench\":\"nvcomp\",\"who\":\"nvcomp\",\"SKIPPED\":\"%s\"}\n", why);
    for (const model &m :
         {make_mix(p.old_bytes, bytes, CHUNK), make_bf16(p.old_bytes, bytes, CHUNK, 0.01)}) {
        make_new(p, m);
        measure_ours(p, m, rounds);
        if (found)
            measure_opponent(&o, p, m, rounds);
    }
    if (found)
        close_opponent(&o);
    free_pair(p);
    return 0;
}
