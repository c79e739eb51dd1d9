// SPDX-License-Identifier: Apache-2.0
// kvern._core: the two engine halves for Python. Translates types and errors, releases the interpreter lock, decides
// nothing.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "base/sha256.h"
#include "base/thread.h"
#include "cache/weights.h"
#include "engine/scheduler_half.h"
#include "engine/worker_half.h"
#include "fabric/guest.h"
#include "kvern/version.h"

namespace nb = nanobind;
using namespace kvern;

namespace {

// Bad input is a ValueError, everything else a RuntimeError; both carry the one sentence.
[[noreturn]] void raise(const Error& error) {
    if (error.code == ErrorCode::invalid_argument) throw nb::value_error(error.message.c_str());
    throw std::runtime_error(error.message);
}

template <class T>
T value_or_raise(Result<T> result) {
    if (!result) raise(result.error());
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// request.block_hashes: a list of bytes, read in place. REQUIRES: the interpreter lock.
class ListHashes final : public BlockHashes {
  public:
    explicit ListHashes(nb::handle list) : list_(list.ptr()) {
        if (!PyList_Check(list_)) throw nb::type_error("block_hashes is not a list");
    }
    std::size_t size() const override { return static_cast<std::size_t>(PyList_GET_SIZE(list_)); }
    std::string_view at(std::size_t block) const override {
        PyObject* item = PyList_GET_ITEM(list_, static_cast<Py_ssize_t>(block));
        if (!PyBytes_Check(item)) throw nb::type_error("a block hash is not bytes");
        return {PyBytes_AS_STRING(item), static_cast<std::size_t>(PyBytes_GET_SIZE(item))};
    }

  private:
    PyObject* list_;
};

// Block ids out of any iterable; None is none.
std::vector<std::int32_t> block_ids(nb::handle blocks) {
    std::vector<std::int32_t> ids;
    if (blocks.is_none()) return ids;
    ids.reserve(nb::len(blocks));
    for (nb::handle block : blocks) ids.push_back(nb::cast<std::int32_t>(block));
    return ids;
}

// The engine's tables, one a group; None is no table.
BlockTable block_table(nb::handle groups) {
    BlockTable table;
    if (groups.is_none()) return table;
    table.reserve(nb::len(groups));
    for (nb::handle blocks : groups) table.push_back(block_ids(blocks));
    return table;
}

nb::bytes to_bytes(const std::string& text) {
    return nb::bytes(text.data(), text.size());
}
std::string_view view(const nb::bytes& bytes) {
    return {bytes.c_str(), bytes.size()};
}

template <class Counts, class Names>
void add_reasons(nb::dict& counts, const char* name, const Counts& values, const Names& names) {
    for (std::size_t i = 0; i < names.size(); ++i) {
        const auto value = static_cast<std::uint64_t>(values[i]);
        if (value > 0) counts[fmt::format("{}/{}", name, names[i]).c_str()] = value;
    }
}

class Scheduler {
  public:
    explicit Scheduler(const std::string& options)
        : half_(value_or_raise(SchedulerHalf::create(value_or_raise(Options::parse(options))))) {}

    void announce(const std::string& engine_id) { value_or_raise(half_->announce(engine_id)); }
    void configure(const std::vector<std::string>& geometries) {
        std::vector<Geometry> workers;
        for (const std::string& geometry : geometries) workers.push_back(value_or_raise(Geometry::from_json(geometry)));
        value_or_raise(half_->configure(workers));
    }
    void add(const std::string& id, nb::handle hashes, std::uint64_t tokens, std::string_view adapter) {
        half_->learn(id, ListHashes(hashes), tokens, adapter);
        half_->add(id);
    }
    // Tokens to load, or -1: ask again.
    std::int64_t match(const std::string& id, nb::handle hashes, std::uint64_t tokens, std::string_view adapter,
                       std::uint64_t local_tokens, bool skip_reading) {
        half_->learn(id, ListHashes(hashes), tokens, adapter);
        const nb::gil_scoped_release unlocked;  // the first ask may wait
        const Match match = half_->match(id, local_tokens, skip_reading);
        return match.pending ? -1 : static_cast<std::int64_t>(match.tokens);
    }
    void allocated(const std::string& id, nb::handle blocks, std::uint64_t tokens) {
        value_or_raise(half_->allocated(id, block_table(blocks), tokens));
    }
    void scheduled(const std::string& id, nb::handle hashes, std::uint64_t tokens, std::string_view adapter,
                   bool restarted, nb::handle blocks, std::uint64_t computed, std::uint64_t scheduled,
                   std::uint64_t drafts) {
        half_->learn(id, ListHashes(hashes), tokens, adapter);
        half_->scheduled(id, {restarted, block_table(blocks), computed, scheduled, drafts});
    }
    nb::bytes build_step() { return to_bytes(half_->build_step()); }
    void bad_blocks(nb::handle blocks) { half_->bad_blocks(block_ids(blocks)); }
    nb::dict counters() const {
        const SchedulerCounters& counters = half_->counters();
        nb::dict counts;
        counts["hit_tokens"] = counters.hit_tokens;
        counts["asked_tokens"] = counters.asked_tokens;
        counts["lookups"] = counters.lookups;
        counts["lookup_seconds"] = static_cast<double>(counters.lookup_ns) * 1e-9;
        counts["offered_chunks"] = counters.offered_chunks;
        add_reasons(counts, "misses", counters.misses, miss_names);
        return counts;
    }
    SchedulerHalf& half() { return *half_; }

  private:
    std::unique_ptr<SchedulerHalf> half_;
};

using Layer = std::tuple<std::string, std::uintptr_t, std::uint64_t>;  // name, address, bytes from block to block
using ShardTuple = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
// kind, layers, bytes of a page, tokens of a block, of a chunk and of the window, shard, replica and replicas
using Group = std::tuple<std::string, std::vector<Layer>, std::uint64_t, std::uint32_t, std::uint32_t, std::uint32_t,
                         ShardTuple, std::uint32_t, std::uint32_t>;

GroupMemory group_memory(const Group& given) {
    const auto& [kind, layers, page_bytes, block_tokens, chunk_tokens, window_tokens, shard, replica, replicas] = given;
    const auto known = group_kind(kind);
    if (!known) throw nb::value_error(fmt::format("'{}' is no kind of a KV cache group", kind).c_str());
    GroupMemory group;
    for (const auto& [name, address, stride_bytes] : layers)
        group.layers.push_back({name, reinterpret_cast<std::byte*>(address), stride_bytes});
    group.page_bytes = page_bytes;
    group.plan = {*known, block_tokens, chunk_tokens, window_tokens};
    std::tie(group.shard.first_layer, group.shard.last_layer, group.shard.first_head, group.shard.last_head) = shard;
    group.replica = replica;
    group.replicas = replicas;
    return group;
}

// (ticket, group, blocks with -1 for one that is left out, address of the slices) of each copy.
nb::list copy_list(const std::vector<DeviceCopy>& copies) {
    nb::list list;
    for (const DeviceCopy& copy : copies)
        list.append(
            nb::make_tuple(copy.ticket, copy.group, copy.blocks, reinterpret_cast<std::uintptr_t>(copy.slices)));
    return list;
}

class Worker {
  public:
    Worker(const std::string& options, const std::vector<Group>& groups, std::uint32_t num_blocks, bool on_device,
           unsigned ranks_on_host) {
        WorkerMemory memory;
        memory.num_blocks = geometry_.num_blocks = num_blocks;
        memory.on_device = on_device;
        for (const Group& given : groups) {
            memory.groups.push_back(group_memory(given));
            geometry_.groups.push_back({memory.groups.back().plan, memory.groups.back().shard});
            layouts_.push_back(memory.groups.back().object_layout());
        }
        half_ = value_or_raise(
            WorkerHalf::create(value_or_raise(Options::parse(options)), std::move(memory), ranks_on_host));
    }
    // The handshake's text, with what this rank sees of the scheduler's nonce.
    std::string geometry(const std::string& rank, const std::string& identity, const std::string& engine_id) {
        Geometry told = geometry_;
        told.rank = rank;
        told.identity = identity;
        told.nonce = half_->read_nonce(engine_id);
        half_->share_reads(engine_id);
        return told.to_json();
    }
    void begin_step(const nb::bytes& metadata) {
        const std::string_view bytes = view(metadata);
        const nb::gil_scoped_release unlocked;
        value_or_raise(half_->begin_step(bytes));
    }
    void save() {
        const nb::gil_scoped_release unlocked;
        half_->save();
    }
    nb::list take_gathers() { return copy_list(half_->take_gathers()); }
    nb::list take_scatters() { return copy_list(half_->take_scatters()); }
    void copied(const std::vector<std::uint64_t>& gathers, std::vector<std::uint64_t> scatters) {
        const nb::gil_scoped_release unlocked;
        half_->copied(gathers, std::move(scatters));
    }
    // Address and bytes of staging.
    std::tuple<std::uintptr_t, std::size_t> staging_memory() const {
        const auto memory = half_->staging_memory();
        return {reinterpret_cast<std::uintptr_t>(memory.data()), memory.size()};
    }
    // Of a group: number of slices, bytes of a slice, bytes from slice to slice.
    std::tuple<std::uint32_t, std::uint64_t, std::uint64_t> slices(std::size_t group) const {
        const ObjectLayout& layout = layouts_.at(group);
        return {layout.slice_count, layout.slice_bytes, layout.slice_stride};
    }
    // Bytes of staging that are in use or held back, and stores without an answer: zeros at rest.
    std::tuple<std::size_t, std::size_t> in_use() {
        const RegionStats stats = half_->staging();
        return {stats.leased_bytes + stats.quarantined_bytes, half_->pending_stores()};
    }
    // (requests, failed requests, bad blocks, troubled requests), or None if nothing has ended.
    nb::object take_finished() {
        FinishedLoads finished = half_->take_finished();
        if (finished.requests.empty()) return nb::none();
        return nb::make_tuple(finished.requests, finished.failed, finished.bad_blocks, finished.troubled);
    }
    nb::dict counters() const {
        const WorkerCounters& counters = half_->counters();
        nb::dict counts;
        counts["loads"] = counters.loads.load();
        counts["load_seconds"] = static_cast<double>(counters.load_ns.load()) * 1e-9;
        counts["bytes_read"] = counters.bytes_read.load();
        counts["verified_slices"] = counters.verified_slices.load();
        counts["mismatched_slices"] = counters.mismatched_slices.load();
        counts["shared_reads"] = counters.shared_reads.load();
        counts["peer_reads"] = counters.peer_reads.load();
        counts["fabric_registrations"] = fabric::registrations();
        counts["stored_chunks"] = counters.stored_chunks.load();
        counts["stored_bytes"] = counters.stored_bytes.load();
        counts["existing_chunks"] = counters.existing_chunks.load();
        add_reasons(counts, "failed_loads", counters.failed_loads, load_failure_names);
        add_reasons(counts, "dropped_chunks", counters.dropped_chunks, drop_names);
        return counts;
    }
    std::size_t shutdown(double wait_seconds) {
        const nb::gil_scoped_release unlocked;
        return half_->shutdown(std::chrono::milliseconds(static_cast<std::int64_t>(wait_seconds * 1e3)));
    }
    WorkerHalf& half() { return *half_; }

  private:
    std::unique_ptr<WorkerHalf> half_;
    Geometry geometry_;
    std::vector<ObjectLayout> layouts_;
};

}  // namespace

NB_MODULE(_core, module) {
    module.doc() = "The engine halves of Kvern. Use kvern.vllm; this module's functions change without notice.";
    module.def("version", &version);
    module.def("thread_cpu_seconds", &thread_cpu_seconds);
    module.def("check_options", [](const std::string& options) { value_or_raise(Options::parse(options)); });
    module.def("option", [](const std::string& options, std::string_view name) -> nb::object {
        const Options parsed = value_or_raise(Options::parse(options));
        if (name == "model_id") return nb::cast(parsed.model_id);
        if (name == "gpu_staging_mib") return nb::cast(parsed.gpu_staging_mib);
        if (name == "allow_fail_policy") return nb::cast(parsed.allow_fail_policy);
        if (name == "mode")
            return nb::cast(parsed.mode == Mode::read_only    ? "read_only"
                            : parsed.mode == Mode::write_only ? "write_only"
                                                              : "read_write");
        throw nb::key_error("no such option");
    });
    module.def("chunk_tokens", [](const std::string& options, std::uint32_t block_tokens, std::uint64_t bytes_per_token,
                                  bool has_state) {
        return value_or_raise(
            resolve_chunk_tokens(value_or_raise(Options::parse(options)), {block_tokens, bytes_per_token, has_state}));
    });
    module.def("weights_digest", [](const std::string& directory) {
        const nb::gil_scoped_release unlocked;
        return value_or_raise(weights_digest(directory, default_weights_cache()));
    });

    nb::class_<Scheduler>(module, "Scheduler")
        .def(nb::init<const std::string&>())
        .def("announce", &Scheduler::announce, nb::call_guard<nb::gil_scoped_release>())
        .def("configure", &Scheduler::configure)
        .def("open",
             [](Scheduler& self, std::string model, std::string label, std::string hash_seed,
                std::uint64_t hash_block_tokens) {
                 value_or_raise(
                     self.half().open(std::move(model), std::move(label), std::move(hash_seed), hash_block_tokens));
             })
        .def("is_open", [](Scheduler& self) { return self.half().is_open(); })
        .def("namespace", [](Scheduler& self) { return self.half().namespace_hex(); })
        .def("describe_store", [](Scheduler& self) { return self.half().describe_store(); })
        .def("add", &Scheduler::add)
        .def("match", &Scheduler::match)
        .def("allocated", &Scheduler::allocated, nb::arg("id"), nb::arg("blocks").none(), nb::arg("tokens"))
        .def("scheduled", &Scheduler::scheduled, nb::arg("id"), nb::arg("hashes"), nb::arg("tokens"),
             nb::arg("adapter"), nb::arg("restarted"), nb::arg("blocks").none(), nb::arg("computed"),
             nb::arg("scheduled"), nb::arg("drafts"))
        .def("count_adapter_miss", [](Scheduler& self) { self.half().count_adapter_miss(); })
        .def("loads_are_whole", [](Scheduler& self) { return self.half().loads_are_whole(); })
        .def("preempted", [](Scheduler& self, const std::string& id) { self.half().preempted(id); })
        .def("finish", [](Scheduler& self, const std::string& id) { self.half().finish(id); })
        .def("build_step", &Scheduler::build_step)
        .def("bad_blocks", &Scheduler::bad_blocks)
        .def("troubled", [](Scheduler& self, const std::string& id) { self.half().troubled(id); })
        .def("loaded", [](Scheduler& self, const std::string& id) { self.half().loaded(id); })
        .def("reset", [](Scheduler& self) { self.half().reset(); })
        .def("explain", [](Scheduler& self, const std::string& id) { return self.half().explain(id); })
        .def("counters", &Scheduler::counters);

    nb::class_<Worker>(module, "Worker")
        .def(nb::init<const std::string&, const std::vector<Group>&, std::uint32_t, bool, unsigned>(),
             nb::arg("options"), nb::arg("groups"), nb::arg("num_blocks"), nb::arg("on_device"),
             nb::arg("ranks_on_host"))
        .def("geometry", &Worker::geometry)
        .def("begin_step", &Worker::begin_step)
        .def("save", &Worker::save)
        .def("take_finished", &Worker::take_finished)
        .def("take_gathers", &Worker::take_gathers)
        .def("take_scatters", &Worker::take_scatters)
        .def("copied", &Worker::copied)
        .def("device_copies_max", [](Worker& self) { return self.half().device_copies_max(); })
        .def("staging_memory", &Worker::staging_memory)
        .def("slices", &Worker::slices)
        .def("in_use", &Worker::in_use)
        .def("owes_stores", [](Worker& self) { return self.half().owes_stores(); })
        .def("pending_stores", [](Worker& self) { return self.half().pending_stores(); })
        .def("describe_store", [](Worker& self) { return self.half().describe_store(); })
        .def("counters", &Worker::counters)
        .def("shutdown", &Worker::shutdown);
}
