// SPDX-License-Identifier: Apache-2.0
// Store: values under keys on file or object storage, asynchronous and batched.
//
// Any thread may submit; each operation gets exactly one Completion in the queue it was submitted with. The queue, and
// the memory that the operation's buffers name, must outlive that completion. A store does not know what KV cache is,
// and does not promise that values are immutable.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvern/memory.h"
#include "kvern/result.h"

namespace kvern {

// Part of a lease that a transfer fills or reads. Direct I/O needs `data` 4 KiB aligned; sizes may be any, but in a
// list of buffers all except the last should be multiples of 4 KiB (else the transfer falls back to buffered I/O).
struct Buffer {
    std::byte* data = nullptr;
    std::size_t size_bytes = 0;
};

enum class OpKind : std::uint8_t { get, put, stat, remove, list, begin, append, commit, abort, space };
enum class Condition : std::uint8_t { any, absent, etag };
std::string_view to_string(OpKind kind);

inline constexpr std::uint64_t whole_value = ~std::uint64_t{0};

struct Op {
    OpKind kind = OpKind::get;
    std::uint64_t tag = 0;  // the caller's own, returned in the completion
    std::string key;        // get, put, stat, remove, begin; for list: the prefix (may be empty)

    // get: bytes [offset, offset + length) of the value into `buffers`, in order. length whole_value = up to the end.
    //      Fewer bytes than asked for, or more than the buffers hold, is failed(io), never a short success; the value's
    //      whole size, etag and mtime come back in Outcome::stat, also with a failure where the value could be opened.
    //      An offset beyond the end is failed(invalid_argument). failed(corrupt): the store itself knows that the bytes
    //      are not what was put; Outcome::stat.etag, where it is known, names that version.
    // put, append: `buffers` are the bytes.
    std::uint64_t offset = 0;
    std::uint64_t length = whole_value;
    std::vector<Buffer> buffers;

    // put, commit: any replaces, absent fails with `precondition` if the key exists (then nothing was written and
    // Outcome::stat describes what is there), etag replaces only that version. remove: any or etag.
    Condition condition = Condition::any;
    std::string etag;
    // put, begin: at most 8 KiB, opaque. commit: instead of begin's, where not empty; not_supported by engines that
    // must know it at the beginning.
    std::string metadata;
    bool with_metadata = false;  // stat, get: fill Outcome::stat.metadata, which may cost a further look
    // get: the value counts as used. Where its mtime is older than limits::use_mark_interval, a read that succeeds
    // moves it to now, soon after the completion; the etag stays. Best effort: a store that may not do so says nothing.
    bool mark_used = false;

    std::string after;         // list: only keys greater than this
    std::size_t limit = 1000;  // list: at most this many entries (and limits::list_entries_max)
    std::uint64_t upload = 0;  // append, commit, abort: Outcome::upload of begin
};

struct Stat {
    std::uint64_t size_bytes = 0;
    std::int64_t mtime_ns = 0;  // since the epoch: when the value was written, or last marked as used
    std::string etag;           // changes with every new version of the value, and with nothing else
    std::string metadata;       // filled where Op::with_metadata asked for it
};

struct Entry {
    std::string key;
    std::uint64_t size_bytes = 0;
    std::int64_t mtime_ns = 0;
    std::string etag;
};

// Of a whole store, as an ordinary user meets it; asked for by the operation `space`, which needs no key.
struct Space {
    std::uint64_t capacity_bytes = 0;
    std::uint64_t free_bytes = 0;   // what may still be written; not more than a quota leaves
    std::uint64_t quota_bytes = 0;  // what a quota lets this user keep in all; 0 where none is known
};

// ok: done. miss: there is no such key. busy: not now (queue full, throttled, deadline); says nothing about the data.
// failed: see error.
enum class Status : std::uint8_t { ok, miss, busy, failed };
std::string_view to_string(Status status);

struct Outcome {
    Status status = Status::failed;
    Error error;                 // failed and busy: why
    std::uint64_t bytes = 0;     // get, put, append: bytes moved
    Stat stat;                   // get, stat, put, commit; put with a failed `absent`
    std::vector<Entry> entries;  // list, in byte order of the keys
    bool more = false;           // list: there are further entries
    std::uint64_t upload = 0;    // begin
    Space space;                 // space
};

struct Completion {
    std::uint64_t tag = 0;
    Outcome outcome;
};

// Where completions arrive. Many engines may push, one owner drains. Waiting is by the eventfd, never by spinning.
class CompletionQueue {
  public:
    CompletionQueue();
    ~CompletionQueue();
    CompletionQueue(const CompletionQueue&) = delete;
    CompletionQueue& operator=(const CompletionQueue&) = delete;

    // Readable while completions are waiting. For poll/epoll; do not read it.
    int event_fd() const { return event_fd_; }
    // All completions so far, oldest first; clears the eventfd. Never blocks.
    std::vector<Completion> drain();
    // Until the next drain(), which the caller promises to call soon on this thread, the eventfd stays as it is: spares
    // two system calls where operations end while they are submitted.
    void hush();
    // Blocks until a completion is there (true) or the timeout passed (false). A negative timeout waits for ever.
    bool wait(std::chrono::milliseconds timeout) const;

    // For engines. One lock and at most one eventfd write a batch.
    void push(Completion completion);
    void push(std::vector<Completion>&& batch);

  private:
    void signal();  // under mutex_

    int event_fd_ = -1;
    std::mutex mutex_;
    std::vector<Completion> completions_;  // under mutex_, as the next two
    bool hushed_ = false;
    bool signalled_ = false;  // the eventfd is readable
};

struct Capabilities {
    bool durable = false;                // a value survives the process
    bool shared = false;                 // other processes see it
    bool ranged = false;                 // get of a part costs a part
    bool conditional_put = false;        // absent and etag are atomic against other writers
    bool immediate = false;              // answers within submit(): nothing is gained by asking ahead
    bool cheap_stat = false;             // a stat takes microseconds: scanning a thousand keys is fine
    std::size_t key_bytes_max = 0;       // longer keys, and more metadata, are failed(not_supported) here even ...
    std::size_t metadata_bytes_max = 0;  // ... where limits.h allows them
};

class Store {
  public:
    virtual ~Store() = default;
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;

    // Takes the operations (they are moved from). Never blocks on I/O. Order between operations is not promised.
    virtual void submit(std::span<Op> ops, CompletionQueue& queue) = 0;
    virtual Capabilities capabilities() const = 0;
    // One line for people: the engine, the path that reads and writes take, and why.
    virtual std::string describe() const = 0;
    // Tells the store about memory that operations will name, so that it can register it once it is touched. Optional:
    // operations on other memory work too. The store keeps the region alive until it is closed.
    virtual void attach(std::shared_ptr<Region> region) = 0;
    // Ends the store: what has not started gets failed(cancelled), what is in flight is waited for until the limit.
    // Operations that are still in flight then complete to nobody, and the engine touches their queues no more; it
    // returns false, and reads may still arrive in their buffers: leases of attached regions must be quarantined. The
    // destructor calls it with limits::close_wait.
    virtual bool close(std::chrono::milliseconds wait) = 0;

  protected:
    Store() = default;
};

// Opens a store by URI:
//   file:///path?io=auto|uring|threads&direct=auto|on|off&depth=N
//   mem:?size=256MiB
//   s3://bucket/prefix?endpoint=http://host:port&region=us-east-1&connections=16 (docs/operations.md lists the rest)
//   fault:CONTROL_FILE!URI   the store URI with faults injected as a JSON file says, for rehearsals
//                            (docs/operations.md): fault:/run/faults.json!file:///mnt/kv?io=threads
// An unknown scheme, parameter or value is an error with a suggestion. file: creates nothing but its own root's
// `.kvern-tmp` folder; a root that is missing, or gives no answer for limits::open_wait, is an error that says so.
Result<std::unique_ptr<Store>> open_store(std::string_view uri);

// Submits one operation and waits for its outcome, for ever if need be. For tests and for what has its own deadline.
Outcome run(Store& store, Op op);
// The same for tools and starts: failed(unavailable) when no answer came within `wait`. The operation then goes on, so
// `memory` must own what its buffers name; it is kept until the answer comes, or for ever.
Outcome run(Store& store, Op op, std::chrono::milliseconds wait, std::shared_ptr<const void> memory = nullptr);

// One sentence for people about an outcome that is not ok: "get 'k': no such key", "put 'k': busy: …".
std::string explain(const Op& op, const Outcome& outcome);

// A key is 1..3584 bytes, components separated by '/', none empty, '.', '..', longer than 255 bytes, or starting with
// ".kvern-"; no byte 0. The error says which rule was broken. Every engine applies it before anything else.
Result<void> check_key(std::string_view key);

}  // namespace kvern
