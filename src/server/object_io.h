// SPDX-License-Identifier: Apache-2.0
// Objects in a store: reading one verified piece by piece, and writing one whole or not at all.
//
// Loop's thread. Knows records and stores, not requests. Memory comes from the gate, a window at a time.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>

#include "http/s3_error.h"
#include "server/damaged_objects.h"
#include "server/memory_gate.h"
#include "server/object_record.h"
#include "server/store_port.h"

namespace kvern::server {

// What reading and writing needs of its loop.
struct ObjectPlace {
    http::Loop& loop;
    StorePort& port;
    MemoryGate& gate;
    DamagedObjects& damaged;
};

// S3's name for what the store said: no_such_key for a miss, slow_down for busy, and so on. The store's own words may
// name its paths: they go into the log, with `what`, and not to the client.
http::S3Error error_of(const Outcome& outcome, std::string_view what);

// slow_down: none was free in time.
http::S3Error no_memory();

struct ObjectHead {
    ObjectRecord record;   // without its tail
    Stat stat;             // the store's; its etag names this version
    bool recorded = true;  // false: its record can't be read; of that only the etag is there, and is the store's
    bool damaged = false;  // some of its bytes were found to be damaged
    bool sound() const { return recorded && !damaged; }
};
// object_damaged, with what names the version. REQUIRES: it is not sound.
http::S3Error damage_of(const ObjectHead& head);
// no_such_key; object_damaged: it has no record; or what the store said.
http::Task<http::S3Result<ObjectHead>> read_head(ObjectPlace place, std::string key);
// For whoever replaces or removes it: without a record, too.
http::Task<http::S3Result<ObjectHead>> look_at(ObjectPlace place, std::string key);
// The record with its tail read, where it has one.
http::Task<http::S3Result<>> complete_record(ObjectPlace place, std::string key, ObjectHead& head);

// Reads bytes [begin, end) of one version of an object. Each piece is verified before it is given out; the next is read
// while the caller uses this one.
class ObjectReader {
  public:
    // Opens: with a small object everything is read by this one operation. no_such_key; object_damaged: without record.
    static http::Task<http::S3Result<ObjectReader>> open(ObjectPlace place, std::string key, bool mark_used);

    const ObjectHead& head() const { return head_; }
    void choose(std::uint64_t begin, std::uint64_t end);  // before the first next(); whole otherwise
    // The next bytes, empty at the end; valid until the next call. object_damaged: they are not what was stored;
    // slow_down: the object was replaced meanwhile.
    http::Task<http::S3Result<std::span<const std::byte>>> next();
    // REQUIRED before it is destroyed, however reading ended: the store may still be writing into its memory.
    http::Task<void> settle();

  private:
    struct Window {
        std::uint64_t begin = 0, end = 0;  // of the object, block boundaries but for the object's end
        MemoryGate::Pass pass;
    };
    ObjectReader(ObjectPlace place, std::string key, ObjectHead head)
        : place_(place), key_(std::move(key)), head_(std::move(head)), end_(head_.record.size_bytes) {}
    struct Coming {
        Window window;
        StorePort::AskedOne asked;
    };
    http::Task<http::S3Result<>> read_ahead(bool must);
    http::Task<http::S3Result<>> read_all_that_is_short();
    http::S3Result<std::span<const std::byte>> give_out(const Window& window) const;

    ObjectPlace place_;
    std::string key_;
    ObjectHead head_;
    std::uint64_t begin_ = 0, end_ = 0;
    std::uint64_t ahead_ = 0;  // where the next window begins
    std::optional<Window> present_;
    std::deque<Coming> coming_;  // in order
    bool started_ = false;
};

// Where the bytes of a new object come from.
class Source {
  public:
    virtual ~Source() = default;
    // Fills `into`, or less at the end.
    virtual http::Task<http::S3Result<std::size_t>> read(std::span<std::byte> into) = 0;
    // After the last byte: verifies what was promised of them, and fills size, etag, sums and checksum of the record.
    virtual http::Task<http::S3Result<>> finish(ObjectRecord& record) = 0;
};

struct WriteTarget {
    std::string key;
    std::optional<std::uint64_t> size_bytes;  // where it is known before
    Condition condition = Condition::any;
    std::string etag;  // the store's
};
// Writes all of the source under the key, or nothing: a source that fails leaves no trace. Gives the record as stored.
http::Task<http::S3Result<ObjectRecord>> write_object(ObjectPlace place, WriteTarget target, ObjectRecord record,
                                                      Source& source);

}  // namespace kvern::server
