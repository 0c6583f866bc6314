"""Limits of control groups: every level up to the root, of both versions."""

import pytest

from gateway.limits.control_groups import cpus, memory_limit_bytes

MIB = 2**20
V2 = "30 24 0:26 {root} {point} rw - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "31 24 0:27 {root} {point} rw,relatime - cgroup cgroup rw,{controllers}\n"


@pytest.fixture
def machine(tmp_path):
    """Writes a process's view of its groups, and the files of the groups."""
    process, point = tmp_path / "proc", tmp_path / "groups"
    process.mkdir()

    def made(groups, mounts, files):
        (process / "cgroup").write_text(groups)
        (process / "mountinfo").write_text(
            "22 1 0:21 / /proc rw - proc proc rw\n"
            + "".join(one.replace("{point}", str(point)) for one in mounts)
        )
        for name, text in files.items():
            file = point / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return process

    return made


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"memory.max": "max\n", "a.slice/memory.max": "max\n"}, None),
        ({"a.slice/b.service/memory.max": f"{512 * MIB}\n", "a.slice/memory.max": "max\n"}, 512 * MIB),
        ({"a.slice/b.service/memory.max": "max\n", "a.slice/memory.max": f"{256 * MIB}\n"}, 256 * MIB),
        ({"memory.max": f"{64 * MIB}\n", "a.slice/memory.max": f"{256 * MIB}\n"}, 64 * MIB),
        ({"other.slice/memory.max": "1\n"}, None),
    ],
)
def test_the_smallest_memory_of_version_2_counts_at_any_level(machine, files, expected):
    process = machine("0::/a.slice/b.service\n", [V2.replace("{root}", "/")], files)
    assert memory_limit_bytes(process) == expected


def test_version_1_has_a_hierarchy_for_each_controller(machine):
    groups = "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n1:name=systemd:/docker/1\n0::/\n"
    mounts = [
        V1.format(root="/", point="{point}/cpu", controllers="cpu,cpuacct"),
        V1.format(root="/", point="{point}/memory", controllers="memory"),
    ]
    files = {
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/docker/memory.limit_in_bytes": f"{300 * MIB}\n",
        "memory/docker/1/memory.limit_in_bytes": "9223372036854771712\n",
        "cpu/docker/1/cpu.cfs_quota_us": "-1\n",
        "cpu/docker/cpu.cfs_quota_us": "50000\n",
        "cpu/docker/cpu.cfs_period_us": "100000\n",
    }
    process = machine(groups, mounts, files)
    assert memory_limit_bytes(process) == 300 * MIB
    assert cpus(process) == 1


def test_a_container_sees_its_group_as_the_root_of_the_mount(machine):
    process = machine(
        "4:memory:/docker/1\n",
        [V1.format(root="/docker/1", point="{point}", controllers="memory")],
        {"memory.limit_in_bytes": f"{256 * MIB}\n"},
    )
    assert memory_limit_bytes(process) == 256 * MIB


def test_quotas_of_all_levels_bound_the_cpus(machine, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {*range(16)}, raising=False)
    mounts = [V2.replace("{root}", "/")]
    assert cpus(machine("0::/a/b\n", mounts, {"a/b/cpu.max": "max 100000\n"})) == 16
    assert cpus(machine("0::/a/b\n", mounts, {"a/cpu.max": "250000 100000\n"})) == 3
    assert cpus(machine("0::/a/b\n", mounts, {"cpu.max": "1000 100000\n"})) == 1


def test_this_process_has_a_cpu():
    assert cpus() >= 1
    limit = memory_limit_bytes()
    assert limit is None or limit > MIB
