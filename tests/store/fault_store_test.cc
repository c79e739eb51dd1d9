// SPDX-License-Identifier: Apache-2.0
// The fault store: its control file, each class of faults, and what holds under all of them.
#include "store/fault_store.h"

#include <bit>
#include <deque>
#include <fstream>
#include <set>
#include <thread>

#include "store/fault_rules.h"
#include "store/store_fixture.h"

namespace kvern::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;

void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

// A fault store over `inner` and its control file.
class Faulty {
  public:
    explicit Faulty(const std::string& rules, const std::string& inner = "mem:") {
        write(rules);
        store = open_or_fail("fault:" + control() + "!" + inner);
    }
    std::string control() const { return folder_.path() + "/faults.json"; }
    // As an operator should: a new file takes the old one's place.
    void write(const std::string& rules) const {
        std::ofstream(control() + ".new") << "{\"rules\": [" << rules << "]}";
        std::filesystem::rename(control() + ".new", control());
    }
    // Writes, and waits until the store has seen it.
    void change(const std::string& rules) const {
        write(rules);
        std::this_thread::sleep_for(limits::fault_check + milliseconds(5));
        run(*store, plain_op(OpKind::stat, "nobody/asks/for/this"));
    }
    Outcome put(const std::string& key, const Memory& value) const { return run(*store, put_op(key, value)); }
    Outcome get(const std::string& key, const Memory& back) const { return run(*store, get_op(key, {back.buffer()})); }
    std::uint64_t seen(std::string_view fault) const {
        const auto text = store->describe();
        const auto at = text.find(std::string(fault) + " ", text.find("injected so far"));
        return at == std::string::npos ? 0 : std::stoull(text.substr(at + fault.size() + 1));
    }

  private:
    TempFolder folder_;

  public:
    std::unique_ptr<Store> store;
};

std::string rule_error(const std::string& rule) {
    const auto rules = parse_fault_rules("{\"rules\": [" + rule + "]}");
    EXPECT_FALSE(rules) << rule;
    return rules ? "" : rules.error().message;
}

TEST(FaultRules, SayWhatIsWrongAndSuggest) {
    expect_in(parse_fault_rules("[]").error().message, "no JSON object");
    expect_in(parse_fault_rules(R"({"rule": []})").error().message, "'rules'");
    expect_in(rule_error(R"({"fault": "error"}, {"fault": "stal"})"),
              "rule 2: there is no fault 'stal' (did you mean 'stall'");
    expect_in(rule_error(R"({"ops": ["get"]})"), "names no fault");
    expect_in(rule_error(R"({"fault": "error", "op": ["get"]})"), "'ops'");
    expect_in(rule_error(R"({"fault": "error", "ops": ["gte"]})"), "'get'");
    expect_in(rule_error(R"({"fault": "gone", "ops": ["put"]})"), "'gone' can't happen to 'put'");
    expect_in(rule_error(R"({"fault": "stall", "ops": ["append"]})"), "can't happen to 'append'");
    expect_in(rule_error(R"({"fault": "error", "probability": 2})"), "probability must be a number from 0");
    expect_in(rule_error(R"({"fault": "error", "probability": 0.5, "every": 2})"), "not both");
    expect_in(rule_error(R"({"fault": "drip"})"), "bytes_per_second");
    expect_in(rule_error(R"({"fault": "late"})"), "ms");
    expect_in(rule_error(R"({"fault": "error", "ms": 3})"), "ms is for");
    EXPECT_TRUE(parse_fault_rules("{}"));
}

TEST(FaultStore, UriNamesControlFileAndStore) {
    TempFolder folder;
    const auto error = [](const std::string& uri) {
        const auto store = open_store(uri);
        return store ? "" : store.error().message;
    };
    expect_in(error("fault:/x.json"), "name the store behind it");
    expect_in(error("fault:x.json!mem:"), "must be absolute");
    expect_in(error("fault:/x.json!mme:"), "'mem'");
    expect_in(error("fault:/x.json!file:///none/here"), "mkdir -p");
    const auto store = open_or_fail("fault:" + folder.path() + "/a%21b.json!file://" + folder.path() + "?io=threads");
    expect_in(store->describe(), folder.path() + "/a!b.json");
    expect_in(store->describe(), "io=threads");
    std::ofstream(folder.path() + "/bad.json") << "{";
    expect_in(error("fault:" + folder.path() + "/bad.json!mem:"), "bad.json");
}

TEST(FaultStore, FollowsItsControlFile) {
    const Faulty f("");
    const auto value = filled(5000, 1);
    EXPECT_EQ(f.put("key", value).status, Status::ok);
    f.change(R"({"fault": "error", "ops": ["get"]})");
    const Memory back(5000);
    EXPECT_FAILED(f.get("key", back), ErrorCode::io);
    f.change(R"({"fault": "what"})");  // not understood: the rules before it stay
    EXPECT_FAILED(f.get("key", back), ErrorCode::io);
    EXPECT_EQ(f.seen("error"), 2U);
    std::filesystem::remove(f.control());
    std::this_thread::sleep_for(limits::fault_check + milliseconds(5));
    EXPECT_EQ(f.get("key", back).status, Status::ok);
    EXPECT_EQ(back.text(), value.text());
}

TEST(FaultStore, RulesChooseByOperationKeyCountAndSeed) {
    const Faulty f(R"({"fault": "busy", "ops": ["stat"], "keys": "a/*", "every": 3},
                      {"fault": "error", "ops": ["stat"], "keys": "b?", "times": 2},
                      {"fault": "error", "ops": ["list"], "probability": 0.5, "seed": 7})");
    const auto statuses = [&](OpKind kind, const std::string& key, int count) {
        std::string text;
        for (int i = 0; i < count; ++i) text += to_string(run(*f.store, plain_op(kind, key)).status)[0];
        return text;
    };
    EXPECT_EQ(statuses(OpKind::stat, "a/b/c", 6), "mmbmmb");
    EXPECT_EQ(statuses(OpKind::stat, "b1", 4), "ffmm");
    EXPECT_EQ(statuses(OpKind::stat, "bcd", 2), "mm");
    const auto listed = statuses(OpKind::list, "", 40);
    EXPECT_GT(std::count(listed.begin(), listed.end(), 'f'), 8);
    EXPECT_GT(std::count(listed.begin(), listed.end(), 'o'), 8);
    f.change(R"({"fault": "error", "ops": ["list"], "probability": 0.5, "seed": 7})");
    EXPECT_EQ(statuses(OpKind::list, "", 40), listed) << "the same seed, the same faults";
}

TEST(FaultStore, AWrongOperationIsWrongWhateverTheRules) {
    const Faulty f(R"({"fault": "busy"})");
    EXPECT_FAILED(run(*f.store, plain_op(OpKind::stat, "../x")), ErrorCode::invalid_argument);
    EXPECT_EQ(f.seen("busy"), 0U);
}

TEST(FaultStore, AStallBeginsLaterAndTheThreadSleepsMeanwhile) {
    const Faulty f(R"({"fault": "stall", "ops": ["get"], "ms": 200})");
    const auto value = filled(5000, 1);
    f.put("key", value);
    const Memory back(5000);
    const auto begin = SteadyClock::now();
    CompletionQueue queue;
    Op op = get_op("key", {back.buffer()});
    f.store->submit({&op, 1}, queue);
    const auto other = run(*f.store, plain_op(OpKind::stat, "key"));  // does not wait behind it
    EXPECT_EQ(other.status, Status::ok);
    EXPECT_TRUE(queue.drain().empty());
    EXPECT_EQ(collect(queue, 1).front().outcome.status, Status::ok);
    EXPECT_GE(SteadyClock::now() - begin, milliseconds(200));
    EXPECT_EQ(back.text(), value.text());

    // How often the thread wakes: the kernel counts.
    const auto wakes = [] {
        std::uint64_t sum = 0;
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
            std::ifstream comm(task.path() / "comm");
            std::string name, word;
            std::getline(comm, name);
            if (name != "kvern-fault") continue;
            for (std::ifstream status(task.path() / "status"); status >> word;)
                if (word == "voluntary_ctxt_switches:") sum += (status >> word, std::stoull(word));
        }
        return sum;
    };
    f.change(R"({"fault": "stall", "ops": ["get"], "ms": 400})");
    op = get_op("key", {back.buffer()});
    f.store->submit({&op, 1}, queue);
    std::this_thread::sleep_for(milliseconds(20));
    const auto before = wakes();
    EXPECT_GT(before, 0U);
    std::this_thread::sleep_for(milliseconds(250));
    EXPECT_EQ(wakes(), before) << "it polls";
    collect(queue, 1);
}

TEST(FaultStore, AStallWithoutEndLastsAsLongAsItsRule) {
    const Faulty f(R"({"fault": "stall", "ops": ["get"]})");
    f.put("key", filled(100, 1));
    const Memory back(100);
    CompletionQueue queue;
    Op op = get_op("key", {back.buffer()});
    f.store->submit({&op, 1}, queue);
    EXPECT_FALSE(queue.wait(milliseconds(50)));
    f.write("");  // and nobody asks for anything else
    EXPECT_EQ(collect(queue, 1).front().outcome.status, Status::ok);
}

TEST(FaultStore, CloseCancelsStallsAndAnswersWhatIsHeldBack) {
    const Faulty f(
        R"({"fault": "stall", "ops": ["stat"]}, {"fault": "late", "ops": ["get"], "keys": "late", "ms": 60000},
                      {"fault": "drip", "ops": ["get"], "bytes_per_second": 1})");
    const auto value = filled(5000, 1);
    f.put("key", value);
    const Memory back(5000), late(5000);
    CompletionQueue queue;
    std::vector<Op> ops{plain_op(OpKind::stat, "key"), get_op("key", {back.buffer()}), get_op("late", {late.buffer()})};
    for (std::size_t i = 0; i < ops.size(); ++i) ops[i].tag = i;
    f.store->submit(ops, queue);
    EXPECT_FALSE(queue.wait(milliseconds(20)));
    const auto begin = SteadyClock::now();
    EXPECT_TRUE(f.store->close(seconds(20)));
    EXPECT_LT(SteadyClock::now() - begin, seconds(10));
    auto answers = queue.drain();  // all, before close() returns
    ASSERT_EQ(answers.size(), 3U);
    std::sort(answers.begin(), answers.end(), [](auto& a, auto& b) { return a.tag < b.tag; });
    EXPECT_FAILED(answers[0].outcome, ErrorCode::cancelled);
    EXPECT_EQ(answers[1].outcome.status, Status::ok);
    EXPECT_EQ(back.text(), value.text());
    EXPECT_FAILED(answers[2].outcome, ErrorCode::cancelled);
}

TEST(FaultStore, ADripTakesSizeByRate) {
    const Faulty f(R"({"fault": "drip", "ops": ["get"], "bytes_per_second": 100000})");
    f.put("key", filled(20000, 1));
    const Memory back(20000);
    const auto begin = SteadyClock::now();
    EXPECT_EQ(f.get("key", back).status, Status::ok);
    EXPECT_GE(SteadyClock::now() - begin, milliseconds(200));
}

TEST(FaultStore, LiesAreWhatTheySay) {
    const auto value = filled(8000, 3);
    const auto text = value.text();
    const Memory back(8000);
    const auto differing_bits = [&] {
        int bits = 0;
        for (std::size_t i = 0; i < text.size(); ++i)
            bits += std::popcount(static_cast<unsigned>(static_cast<unsigned char>(text[i] ^ back.text()[i])));
        return bits;
    };
    const Faulty f("");
    f.put("key", value);

    f.change(R"({"fault": "flip", "ops": ["get"]})");
    EXPECT_EQ(f.get("key", back).status, Status::ok);
    EXPECT_EQ(differing_bits(), 1);

    f.change(R"({"fault": "flip", "ops": ["put"]})");
    EXPECT_EQ(f.put("key", value).status, Status::ok);
    EXPECT_EQ(value.text(), text) << "never in the caller's buffer";
    EXPECT_EQ(f.get("key", back).status, Status::ok);
    EXPECT_EQ(differing_bits(), 1);

    f.change(R"({"fault": "torn", "ops": ["put"]})");
    const auto torn = f.put("torn", value);
    EXPECT_EQ(torn.status, Status::ok);
    EXPECT_EQ(torn.bytes, 8000U);
    EXPECT_EQ(run(*f.store, plain_op(OpKind::stat, "torn")).stat.size_bytes, 4000U);

    f.change("");
    f.put("key", value);
    f.change(R"({"fault": "torn", "ops": ["get"]})");
    std::memset(back.data(), 0, 8000);
    const auto half = f.get("key", back);
    EXPECT_EQ(half.status, Status::ok);
    EXPECT_EQ(half.bytes, 8000U);
    EXPECT_EQ(back.text(), text.substr(0, 4000) + std::string(4000, '\0'));

    f.change(R"({"fault": "cut"})");
    std::memset(back.data(), 0, 8000);
    const auto cut = f.get("key", back);
    EXPECT_FAILED(cut, ErrorCode::io);
    EXPECT_EQ(cut.stat.size_bytes, 8000U);
    EXPECT_EQ(back.text(), text.substr(0, 4000) + std::string(4000, '\0'));
    EXPECT_FAILED(f.put("cut", value), ErrorCode::io);
    EXPECT_EQ(run(*f.store, plain_op(OpKind::stat, "cut")).status, Status::miss);

    f.change(R"({"fault": "lost"})");
    EXPECT_EQ(f.put("lost", value).bytes, 8000U);
    EXPECT_EQ(run(*f.store, plain_op(OpKind::stat, "lost")).status, Status::miss);
    EXPECT_EQ(run(*f.store, plain_op(OpKind::remove, "key")).status, Status::ok);
    EXPECT_EQ(run(*f.store, plain_op(OpKind::stat, "key")).status, Status::ok);

    f.change(R"({"fault": "gone", "ops": ["get"]})");
    EXPECT_EQ(run(*f.store, plain_op(OpKind::stat, "key")).status, Status::ok);
    EXPECT_EQ(f.get("key", back).status, Status::miss);

    f.change(R"({"fault": "late", "ms": 30})");
    std::memset(back.data(), 0, 8000);
    EXPECT_FAILED(f.get("key", back), ErrorCode::io);
    EXPECT_EQ(back.text(), text) << "the bytes came, before the answer";
    for (const auto* fault : {"flip", "torn", "cut", "lost"}) EXPECT_EQ(f.seen(fault), 2U) << fault;
    for (const auto* fault : {"gone", "late"}) EXPECT_EQ(f.seen(fault), 1U) << fault;
}

// --- Whatever the fault: one completion each, no wrong bytes but by lies, nothing touched afterwards.

struct Class {
    std::string fault;
    std::string fields;  // further ones of the rule
    bool lies = false;   // wrong bytes may be ok
};
void PrintTo(const Class& one, std::ostream* out) {
    *out << one.fault;
}

class FaultClass : public ::testing::TestWithParam<Class> {};
INSTANTIATE_TEST_SUITE_P(All, FaultClass,
                         ::testing::Values(Class{"error", ""}, Class{"busy", ""}, Class{"stall", R"(, "ms": 3)"},
                                           Class{"drip", R"(, "bytes_per_second": 1e7)"}, Class{"cut", ""},
                                           Class{"torn", "", true}, Class{"flip", "", true}, Class{"lost", ""},
                                           Class{"gone", ""}, Class{"late", R"(, "ms": 3)"}),
                         [](const auto& one) { return one.param.fault; });

constexpr std::size_t value_bytes = 20000;
constexpr std::size_t keys = 5;

// What a put of `key` by a thread in a round writes: readers can tell whether they see one such value.
Memory version(std::size_t key, std::uint64_t number) {
    return filled(value_bytes, key * 1000000 + number);
}

struct Worker {
    Worker(Store& to, std::uint64_t seed, std::uint64_t from) : store(to), random(seed), first_number(from) {}

    void work(int rounds) {
        // A buffer is the caller's again once its operation is answered; what it writes there must stay.
        std::set<std::uint64_t> answered;
        for (int round = 1; round <= rounds; ++round) {
            submit_some();
            if (round % 5 != 0) continue;  // several batches at a time are under way
            for (auto& completion : collect(queue, sent.size() - answered.size())) {
                EXPECT_TRUE(answered.insert(completion.tag).second) << "answered twice";
                judge(completion);
                std::memset(sent.at(completion.tag).memory.data(), 0x77, value_bytes);
            }
        }
        EXPECT_EQ(answered.size(), sent.size());
    }
    void submit_some() {
        std::vector<Op> ops;
        for (std::uint64_t i = random() % 4 + 1; i > 0; --i) {
            const auto tag = sent.size();
            const std::size_t key = random() % keys;
            const auto kind = static_cast<OpKind>(random() % 4);
            auto& one = sent.emplace_back(Sent{kind, key, version(key, first_number + tag), ""});
            const auto name = "k" + std::to_string(key);
            Op op = kind == OpKind::put ? put_op(name, one.memory)
                    : kind == OpKind::get
                        ? get_op(name, {one.memory.part(0, 4096), one.memory.part(4096, value_bytes - 4096)})
                        : plain_op(kind, name);
            if (kind == OpKind::put) one.text = one.memory.text();
            op.tag = tag;
            ops.push_back(std::move(op));
        }
        store.submit(ops, queue);
    }
    void judge(const Completion& completion) {
        const auto& one = sent.at(completion.tag);
        const auto& outcome = completion.outcome;
        EXPECT_TRUE(one.memory.guards_intact());
        EXPECT_TRUE(one.kind != OpKind::put || one.memory.text() == one.text) << "a put changed its bytes";
        if (one.kind == OpKind::get && outcome.status == Status::ok) read.emplace_back(one.key, one.memory.text());
    }
    bool untouched() const {
        return std::all_of(sent.begin(), sent.end(),
                           [](const Sent& one) { return one.memory.text() == std::string(value_bytes, 0x77); });
    }

    struct Sent {
        OpKind kind;
        std::size_t key;
        Memory memory;
        std::string text;
    };
    Store& store;
    std::mt19937_64 random;
    std::uint64_t first_number;
    CompletionQueue queue;
    std::deque<Sent> sent;
    std::vector<std::pair<std::size_t, std::string>> read;  // key and bytes
};

void check_class(const Class& one, const std::string& inner, std::uint64_t seed) {
    const Faulty f(R"({"fault": ")" + one.fault + R"(", "probability": 0.3)" + one.fields + "}", inner);
    const auto region = Region::create({.name = "test", .size_bytes = 1 << 20});
    f.store->attach(*region);
    Worker first(*f.store, seed, 0), second(*f.store, seed + 1, 100000);
    std::thread other([&] { second.work(60); });
    first.work(60);
    other.join();
    EXPECT_GT(f.seen(one.fault), 0U) << f.store->describe();
    const auto begin = SteadyClock::now();
    EXPECT_TRUE(f.store->close(seconds(20)));
    EXPECT_LT(SteadyClock::now() - begin, seconds(10));
    std::set<std::string> written;
    std::size_t wrong = 0;
    for (const auto* worker : {&first, &second}) {
        EXPECT_FALSE(worker->queue.wait(milliseconds(0))) << "answered more than once";
        EXPECT_TRUE(worker->untouched()) << "a buffer changed after its completion";
        for (const auto& sent : worker->sent)
            if (sent.kind == OpKind::put) written.insert(std::to_string(sent.key) + sent.text);
    }
    std::size_t read = 0;
    for (const auto* worker : {&first, &second})
        for (const auto& [key, text] : worker->read) {
            ++read;
            wrong += !written.contains(std::to_string(key) + text);
        }
    EXPECT_GT(read, 0U);
    if (one.lies) {
        EXPECT_GT(wrong, 0U) << "nothing was spoilt";
    } else {
        EXPECT_EQ(wrong, 0U);
    }
}

TEST_P(FaultClass, KeepsTheContractOverMemory) {
    check_class(GetParam(), "mem:", test_seed());
}

TEST_P(FaultClass, KeepsTheContractOverFiles) {
    const TempFolder folder;
    check_class(GetParam(), "file://" + folder.path(), test_seed());
}

// --- Waiting with a deadline.

TEST(RunWithDeadline, GivesUpAndKeepsTheMemoryUntilTheAnswer) {
    const Faulty f(R"({"fault": "stall", "ops": ["get"], "ms": 300}, {"fault": "stall", "ops": ["stat"], "ms": 5})");
    f.put("key", filled(5000, 1));
    auto memory = std::make_shared<Memory>(5000);
    const std::weak_ptr<Memory> watched = memory;
    auto op = get_op("key", {memory->buffer()});
    const auto begin = SteadyClock::now();
    const auto outcome = run(*f.store, op, milliseconds(20), std::move(memory));
    EXPECT_FAILED(outcome, ErrorCode::unavailable);
    expect_in(outcome.error.message, "20 ms");
    expect_in(outcome.error.message, "fault over mem:");
    // Each that gives up frees what was answered meanwhile.
    while (!watched.expired() && SteadyClock::now() - begin < seconds(60))
        run(*f.store, plain_op(OpKind::stat, "key"), milliseconds(1));
    EXPECT_TRUE(watched.expired());
    EXPECT_GE(SteadyClock::now() - begin, milliseconds(300)) << "freed while the read could still land there";
    EXPECT_EQ(run(*f.store, plain_op(OpKind::list), seconds(60)).status, Status::ok);
}

}  // namespace
}  // namespace kvern::testing
