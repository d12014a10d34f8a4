"""The work of kernels, counted in small ones by hand."""

import pytest

from slipstream.compiler.worker.kernel_work import KernelWork, mosaic_work, triton_work
from slipstream.compiler.worker.pallas_calls import with_kernel_work
from slipstream.jaxhooks.compiling import parsed_kernel
from slipstream.profile.semantics.backend_config import call_attributes
from slipstream.sources.hlo.reader import program_from_proto
from slipstream.sources.proto_schema import message

TRITON = """
module {
  tt.func public @kernel(%in: !tt.ptr<bf16>) {
    %a = arith.constant dense<0.0> : tensor<64x32xbf16>
    %b = arith.constant dense<0.0> : tensor<32x64xbf16>
    %c = arith.constant dense<0.0> : tensor<64x64xf32>
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %x = tt.get_program_id x : i32
    %n = arith.addi %x, %one : i32
    BOUND
    scf.for %i = %zero to %bound step %one : i32 {
      %d = tt.dot %a, %b, %c : tensor<64x32xbf16> * tensor<32x64xbf16> -> tensor<64x64xf32>
      %e = math.exp2 %d : tensor<64x64xf32>
      %f = arith.addf %e, %d : tensor<64x64xf32>
    }
    tt.return
  }
}
"""
FLOPS = 2 * 64 * 64 * 32
MOSAIC = """
module {
  func.func @host() {
    %one = arith.constant 1 : index
    %blocks = arith.constant 6 : index
    %threads = arith.constant 384 : index
    gpu.launch blocks(%bx, %by, %bz) in (%gx = %blocks, %gy = %one, %gz = %one)
               threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %one, %sz = %one) {
      %size = arith.constant 128 : index
      %group = arith.divui %tx, %size : index
      scf.index_switch %group
      case 2 {
        scf.yield
      }
      default {
        llvm.inline_asm has_side_effects "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {};", "" : () -> ()
        scf.yield
      }
      gpu.terminator
    }
    return
  }
}
"""  # noqa: E501


def triton(bound: str, grid: tuple[int, int, int]) -> KernelWork:
    with parsed_kernel(TRITON.replace("BOUND", bound)) as module:
        return triton_work(module, grid)


def test_loops_run_as_often_as_the_place_in_the_grid_says():
    work = triton("%bound = arith.muli %n, %one : i32", (4, 3, 1))
    rounds = (1 + 2 + 3 + 4) * 3
    assert work.flops == FLOPS * rounds
    assert work.transcendentals == 64 * 64 * rounds
    assert work.operations == 64 * 64 * rounds
    assert (work.programs, work.longest, work.is_dynamic) == (12, 4 / 2.5, False)
    assert work.by_tile == {(64, 64, 32, "bf16"): work.flops}


def test_a_large_grid_is_sampled():
    work = triton("%bound = arith.muli %n, %one : i32", (64, 64, 64))
    assert work.flops == pytest.approx(FLOPS * 32.5 * 64**3, rel=0.01)
    assert work.programs == 64**3


def test_a_loop_whose_length_follows_from_data_counts_once():
    load = "%p = tt.addptr %in, %zero : !tt.ptr<bf16>, i32\n"
    load += "%q = tt.load %p : !tt.ptr<bf16>\n%bound = arith.fptosi %q : bf16 to i32"
    work = triton(load, (4, 1, 1))
    assert (work.flops, work.is_dynamic) == (FLOPS * 4, True)


def test_warpgroups_of_mosaic_that_move_data_don_t_multiply():
    with parsed_kernel(MOSAIC) as module:
        work = mosaic_work(module)
    assert work.flops == 6 * 2 * (2 * 64 * 128 * 16)
    assert (work.programs, work.longest, work.is_dynamic) == (6, 1.0, False)


def program(config: str):
    proto = message("HloModuleProto")(name="m", entry_computation_id=1)
    computation = proto.computations.add(name="main", id=1, root_id=1)
    call = computation.instructions.add(name="k", id=1, opcode="custom-call")
    call.custom_call_target = "__gpu$xla.gpu.triton"
    call.backend_config = config.encode()
    call.shape.element_type = 11
    noted = program_from_proto(with_kernel_work(proto.SerializeToString()))
    return noted.instruction("k")


def test_what_was_counted_is_noted_in_the_call():
    code = TRITON.replace("BOUND", "%bound = arith.muli %n, %one : i32").replace("\n", "\\0A")
    call = program(f'{{grid_x = 4 : i32, grid_y = 3 : i32, grid_z = 1 : i32, ir = "{code}"}}')
    stated = call_attributes(call)
    assert stated["slipstream_flops"] == FLOPS * 30
    assert (stated["slipstream_m"], stated["slipstream_dtype"]) == (64, "bf16")
    assert stated["grid_y"] == 3


@pytest.mark.parametrize("config", ["", "{}", '{ir = "nonsense", grid_x = 1 : i32}'])
def test_code_that_is_not_understood_is_left_alone(config):
    assert "slipstream_flops" not in call_attributes(program(config))
