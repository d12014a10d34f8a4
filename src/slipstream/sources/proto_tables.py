"""The fields of XLA's and its profiler's messages that Slipstream reads, as data.

One paragraph for each message: its name, then lines of `field number type`. A type is a scalar or
a message of the same table; `*` marks repeated fields, `?` scalars whose presence matters,
`map<key,value>` maps, and `@name` members of the oneof of that name. Enumerations are read as
int32, which is the same on the wire. `proto_schema.py` builds the classes.
"""

XLA = """
CompileOptionsProto
  executable_build_options 3 ExecutableBuildOptionsProto

ExecutableBuildOptionsProto
  device_memory_size 15 int64

HloProto
  hlo_module 1 HloModuleProto
  buffer_assignment 3 BufferAssignmentProto

HloModuleProto
  name 1 string
  entry_computation_name 2 string
  computations 3 HloComputationProto*
  host_program_shape 4 ProgramShapeProto
  id 5 int64
  entry_computation_id 6 int64
  schedule 7 HloScheduleProto
  input_output_alias 8 HloInputOutputAliasProto
  device_assignment 15 DeviceAssignmentProto
  stack_frame_index 17 StackFrameIndexProto
  frontend_attributes 19 FrontendAttributes
  device_type 21 string
  payloads 22 bytes*
  pjrt_id 23 int64?

HloComputationProto
  name 1 string
  instructions 2 HloInstructionProto*
  program_shape 4 ProgramShapeProto
  id 5 int64
  root_id 6 int64
  is_fusion_computation 7 bool
  execution_thread 8 string

HloInstructionProto
  name 1 string
  opcode 2 string
  shape 3 ShapeProto
  metadata 7 OpMetadata
  literal 8 LiteralProto
  parameter_number 9 int64
  fusion_kind 11 string
  tuple_index 13 int64
  dimensions 14 int64*
  window 15 Window
  convolution_dimension_numbers 16 ConvolutionDimensionNumbers
  slice_dimensions 17 HloInstructionProto.SliceDimensions*
  dynamic_slice_sizes 20 int64*
  padding_config 21 PaddingConfig
  channel_id 26 int64
  custom_call_target 28 string
  dot_dimension_numbers 30 DotDimensionNumbers
  gather_dimension_numbers 33 GatherDimensionNumbers
  gather_slice_sizes 34 int64*
  id 35 int64
  operand_ids 36 int64*
  control_predecessor_ids 37 int64*
  called_computation_ids 38 int64*
  backend_config 43 bytes
  is_host_transfer 47 bool
  scatter_dimension_numbers 48 ScatterDimensionNumbers
  replica_groups 49 ReplicaGroup*
  feature_group_count 50 int64
  precision_config 51 PrecisionConfig
  source_target_pairs 52 SourceTarget*
  batch_group_count 58 int64
  comparison_direction 63 string
  frontend_attributes 68 FrontendAttributes
  use_global_device_ids 71 bool
  output_operand_aliasing 74 OutputOperandAliasing*
  async_execution_thread 79 string
  collective_device_list 87 CollectiveDeviceListProto
  ragged_dot_dimension_numbers 90 RaggedDotDimensionNumbers
  iota_collective_device_list 92 IotaReplicaGroupListProto
  mesh_axes_replica_group_list 93 MeshAxesReplicaGroupListProto
  backend_config_payload 99 Payload

OutputOperandAliasing
  output_shape_index 1 int64*
  operand_index 2 int64
  operand_shape_index 3 int64*

HloInstructionProto.SliceDimensions
  start 1 int64
  limit 2 int64
  stride 3 int64

OpMetadata
  op_type 1 string
  op_name 2 string
  source_file 3 string
  source_line 4 int32
  deduplicated_name 12 string
  stack_frame_id 15 int32
  scheduling_name 16 string
  metadata_payload 20 Payload

Payload
  value 1 bytes
  id 2 int64

ShapeProto
  element_type 2 int32
  dimensions 3 int64*
  tuple_shapes 4 ShapeProto*
  layout 5 LayoutProto
  is_dynamic_dimension 6 bool*

LayoutProto
  minor_to_major 1 int64*
  tiles 6 TileProto*
  element_size_in_bits 7 int64
  memory_space 8 int64

TileProto
  dimensions 1 int64*

ProgramShapeProto
  parameters 1 ShapeProto*
  result 2 ShapeProto
  parameter_names 3 string*

LiteralProto
  shape 1 ShapeProto
  preds 2 bool*
  s32s 4 int32*
  s64s 5 int64*
  u32s 6 uint32*
  u64s 7 uint64*
  f32s 8 float*
  f64s 9 double*
  bf16s 13 bytes

Window
  dimensions 1 WindowDimension*

WindowDimension
  size 1 int64
  stride 2 int64
  padding_low 3 int64
  padding_high 4 int64
  window_dilation 5 int64
  base_dilation 6 int64
  window_reversal 7 bool

ConvolutionDimensionNumbers
  kernel_input_feature_dimension 3 int64
  kernel_output_feature_dimension 4 int64
  kernel_spatial_dimensions 6 int64*
  input_batch_dimension 7 int64
  input_feature_dimension 8 int64
  output_batch_dimension 9 int64
  output_feature_dimension 10 int64
  input_spatial_dimensions 11 int64*
  output_spatial_dimensions 12 int64*

DotDimensionNumbers
  lhs_contracting_dimensions 1 int64*
  rhs_contracting_dimensions 2 int64*
  lhs_batch_dimensions 3 int64*
  rhs_batch_dimensions 4 int64*

RaggedDotDimensionNumbers
  dot_dimension_numbers 1 DotDimensionNumbers
  lhs_ragged_dimensions 2 int64*
  rhs_group_dimensions 3 int64*

GatherDimensionNumbers
  offset_dims 1 int64*
  collapsed_slice_dims 2 int64*
  start_index_map 3 int64*
  index_vector_dim 4 int64
  operand_batching_dims 5 int64*
  start_indices_batching_dims 6 int64*

ScatterDimensionNumbers
  update_window_dims 1 int64*
  inserted_window_dims 2 int64*
  scatter_dims_to_operand_dims 3 int64*
  index_vector_dim 4 int64
  input_batching_dims 5 int64*
  scatter_indices_batching_dims 6 int64*

PaddingConfig
  dimensions 1 PaddingConfig.PaddingConfigDimension*

PaddingConfig.PaddingConfigDimension
  edge_padding_low 1 int64
  edge_padding_high 2 int64
  interior_padding 3 int64

PrecisionConfig
  operand_precision 1 int32*
  algorithm 2 int32

ReplicaGroup
  replica_ids 1 int64*

CollectiveDeviceListProto
  replica_groups 1 ReplicaGroup*

IotaReplicaGroupListProto
  num_replica_groups 1 int64
  num_devices_per_group 2 int64
  iota_reshape_dims 3 int64*
  iota_transpose_perm 4 int32*

MeshAxesReplicaGroupListProto
  mesh 1 MeshProto
  axes 2 AxisRefProto*

MeshProto
  axes 1 MeshProto.MeshAxis*
  device_ids 2 int64*
  iota_transform 3 MeshProto.IotaTransform

MeshProto.MeshAxis
  name 1 string
  size 2 int64

MeshProto.IotaTransform
  reshape_dims 1 int64*
  transpose_perm 2 int64*

AxisRefProto
  mesh_axis_index 1 int64
  sub_axis_info 2 AxisRefProto.SubAxis

AxisRefProto.SubAxis
  pre_size 1 int64
  size 2 int64

SourceTarget
  source 1 int64
  target 2 int64

FrontendAttributes
  map 1 map<string,string>

HloScheduleProto
  sequences 1 map<int64,HloScheduleProto.InstructionSequence>

HloScheduleProto.InstructionSequence
  instruction_ids 1 int64*

HloInputOutputAliasProto
  entries 1 HloInputOutputAliasProto.AliasEntryProto*

HloInputOutputAliasProto.AliasEntryProto
  output_shape_index 1 int64*
  parameter_number 2 int64
  parameter_shape_index 3 int64*
  kind 4 int32

DeviceAssignmentProto
  replica_count 1 int32
  computation_count 2 int32
  computation_devices 3 DeviceAssignmentProto.ComputationDevice*

DeviceAssignmentProto.ComputationDevice
  replica_device_ids 1 int64*

StackFrameIndexProto
  file_names 1 string*
  function_names 2 string*
  file_locations 3 StackFrameIndexProto.FileLocation*
  stack_frames 4 StackFrameIndexProto.StackFrame*

StackFrameIndexProto.FileLocation
  file_name_id 1 int32
  function_name_id 2 int32
  line 3 int32
  column 4 int32
  end_line 5 int32
  end_column 6 int32

StackFrameIndexProto.StackFrame
  file_location_id 1 int32
  parent_frame_id 2 int32

BufferAssignmentProto
  logical_buffers 1 LogicalBufferProto*
  buffer_aliases 2 BufferAssignmentProto.BufferAlias*
  buffer_allocations 3 BufferAllocationProto*
  heap_simulator_traces 4 HeapSimulatorTrace*
  peak_buffers 5 BufferAssignmentProto.PeakBuffers*

BufferAssignmentProto.BufferAlias
  source_buffer_id 1 int64
  location 2 LogicalBufferProto.Location

BufferAssignmentProto.PeakBuffers
  index 1 int64
  logical_buffer_ids 2 int64*

LogicalBufferProto
  id 1 int64
  size 2 int64
  defined_at 3 LogicalBufferProto.Location
  color 4 int64

LogicalBufferProto.Location
  instruction_name 2 string
  shape_index 3 int64*
  instruction_id 4 int64

BufferAllocationProto
  index 1 int64
  size 2 int64
  is_thread_local 3 bool
  is_entry_computation_parameter 5 bool
  parameter_number 6 int64
  maybe_live_out 7 bool
  color 8 int64
  assigned 9 BufferAllocationProto.Assigned*
  parameter_shape_index 10 int64*
  is_tuple 11 bool
  is_constant 12 bool
  is_parameter_aliased_with_output 13 bool

BufferAllocationProto.Assigned
  logical_buffer_id 1 int64
  offset 2 int64
  size 3 int64

HeapSimulatorTrace
  events 1 HeapSimulatorTrace.Event*
  whole_module_simulation 2 bool
  buffer_allocation_index 3 int64

HeapSimulatorTrace.Event
  kind 1 int32
  buffer_id 2 int64
  computation_name 3 string
  instruction_name 4 string
  share_with_canonical_id 5 int64
"""

PROFILER = """
ProfiledInstructionsProto
  costs 1 ProfiledInstructionsProto.InstructionCost*
  latencies 2 ProfiledInstructionsProto.Latency*

ProfiledInstructionsProto.InstructionCost
  name 1 string
  cost_us 2 double

ProfiledInstructionsProto.Latency
  source 1 string
  target 2 string
  latency_us 3 double

XSpace
  planes 1 XPlane*
  errors 2 string*
  warnings 3 string*
  hostnames 4 string*

XPlane
  id 1 int64
  name 2 string
  lines 3 XLine*
  event_metadata 4 map<int64,XEventMetadata>
  stat_metadata 5 map<int64,XStatMetadata>
  stats 6 XStat*

XLine
  id 1 int64
  name 2 string
  timestamp_ns 3 int64
  events 4 XEvent*
  duration_ps 9 int64
  display_id 10 int64
  display_name 11 string

XEvent
  metadata_id 1 int64
  offset_ps 2 int64 @data
  duration_ps 3 int64
  stats 4 XStat*
  num_occurrences 5 int64 @data

XStat
  metadata_id 1 int64
  double_value 2 double @value
  uint64_value 3 uint64 @value
  int64_value 4 int64 @value
  str_value 5 string @value
  bytes_value 6 bytes @value
  ref_value 7 uint64 @value

XEventMetadata
  id 1 int64
  name 2 string
  metadata 3 bytes
  display_name 4 string
  stats 5 XStat*
  child_id 6 int64*

XStatMetadata
  id 1 int64
  name 2 string
  description 3 string
"""
