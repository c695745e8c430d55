"""Rules for training itself: data loader workers, NaN, devices, shapes."""

from __future__ import annotations

from watcherml.forensics.matching import rule

TENSORS = "runtime ValueError AssertionError IndexError"
NAN_TYPES = "runtime ValueError AssertionError FloatingPointError"
NAN = r"(?:nan|inf|infinite|infinity|non-?finite|not finite)\b"
WORKER = r"\bDataLoader worker \(pid(?:\(s\))? [0-9, ]{1,400}\)"
SPAWNED = r"\bmultiprocessing[/\\](?:spawn|reduction|popen_\w+|context)\b"

LOADERS = (
    rule("worker/killed", "runtime", "A worker died.", WORKER + r" is killed by signal: Killed\b"),
    rule(
        "worker/bus_error", "runtime", "A worker died of shared memory.", WORKER + r" is killed by signal: Bus error\b"
    ),
    rule("worker/segfault", "runtime", "A worker died.", WORKER + r" is killed by signal: Segmentation fault\b"),
    rule("worker/terminated", "runtime", "A worker died.", WORKER + r" is killed by signal: "),
    rule("worker/exited_unexpectedly", "runtime", "A worker died.", WORKER + r" exited unexpectedly\b"),
    rule("worker/timed_out", "runtime", "A worker passed no data in time.", r"\bDataLoader timed out after\b"),
    rule(
        "worker/fd_passing",
        "runtime OSError",
        "Workers ran out of file descriptors.",
        r"\breceived [0-9]+ items of ancdata\b",
        r"\bToo many open files\. Communication with the workers\b",
    ),
    rule(
        "worker/shm_full",
        "runtime OSError",
        "Shared memory is full.",
        r"<?/torch_[0-9]+_[\w]+>?[^\n]{0,80}No space left on device",
    ),
    rule(
        "worker/shared_memory_object",
        "runtime",
        "A shared-memory object of a worker failed.",
        r"\bunable to (?:write to|open|mmap|resize)\b[^\n]{0,80}</?torch_",
    ),
    rule(
        "worker/worker_socket",
        "FileNotFoundError ConnectionRefusedError",
        "The channel of a dead worker.",
        r"/pymp-\w+/|/torch_[0-9]+_[0-9]+",
        quoted=True,
    ),
    rule(
        "worker/worker_start",
        "runtime",
        "A worker could not start.",
        r"\bAn attempt has been made to start a new process before\b",
    ),
    rule(
        "worker/worker_start_pickle",
        "AttributeError PicklingError TypeError",
        "What a worker needs cannot be pickled.",
        r"^Can't (?:pickle|get) local object\b",
        r"^Can't pickle\b",
        "^cannot pickle '",
        quoted=True,
        frames=SPAWNED,
    ),
    rule(
        "worker/worker_start_pickle",
        "AttributeError",
        "Without a traceback the usual place is a worker's start.",
        r"^Can't pickle local object\b",
        quoted=True,
        frames=r"\A\Z",
        variant="text",
    ),
    rule(
        "worker/worker_start_pickle",
        "EOFError",
        "A spawned worker read a broken pipe; from a file the same words mean a damaged pickle.",
        r"^Ran out of input\b",
        frames=SPAWNED,
        variant="eof",
    ),
)

NANS = (
    rule(
        "nan/autograd_anomaly",
        "runtime",
        "Anomaly detection.",
        r"\bFunction '\w{1,100}' returned nan values in its [0-9]+th output",
        quoted=True,
    ),
    rule(
        "nan/loss_scale_floor",
        NAN_TYPES,
        "Mixed precision kept overflowing.",
        r"\bloss scale already at minimum\b",
        r"\bminimum loss scale reached\b",
        any_case=True,
    ),
    rule(
        "nan/detectron2_check",
        "FloatingPointError",
        "The trainer checks each loss.",
        r"\bLoss became infinite or NaN at iteration\b",
    ),
    rule(
        "nan/gradient_norm", "runtime", "Clipping found it.", r"\bThe total norm of order [^\n]{1,80} is non-finite\b"
    ),
    rule(
        "nan/probabilities",
        "runtime",
        "Sampling found it.",
        r"\bprobability tensor contains either `?inf`?, `?nan`? or element < 0",
        quoted=True,
    ),
    rule(
        "nan/nan_parameters",
        "ValueError",
        "Only NaN fails to be real.",
        r"\A\s*Expected (?:parameter|value) [\s\S]{1,1500}? to satisfy the constraint "
        r"(?:IndependentConstraint\()?Real\(",
    ),
    rule(
        "nan/nan_parameters",
        "ValueError",
        "A distribution found it.",
        r"\A\s*Expected (?:parameter|value) [\s\S]{1,1500}?but found invalid values:[\s\S]{0,2000}?\bnan\b",
        variant="values",
    ),
    rule(
        "none/nan_in_input_data",
        "ValueError",
        "The data held it before training.",
        r"^Input(?: \w{1,40})? contains (?:nan|infinity)\b",
        any_case=True,
    ),
    rule(
        "nan/project_check",
        NAN_TYPES,
        "The program checked and said so.",
        r"\b(?:loss(?:es)?|gradients?|grads?|(?:grad(?:ient)?|total) norm|logits|outputs?|parameters?|weights?"
        r"|activations?)(?: tensor| value)?(?: returned in [^\n]{1,60})?,? {0,2}"
        r"(?:is|are|was|were|became|become|has become|contains?|=|==|:|turned|went|diverged to) {0,2}(?:an? )?" + NAN,
        any_case=True,
    ),
    rule(
        "nan/project_check",
        NAN_TYPES,
        "The program checked and said so.",
        r"\bdetected (?:nan|inf)[^\n]{0,40} values in\b",
        r"\b(?:nan|inf|non-?finite) (?:loss|gradients?)\b(?! (?:check|guard|policy|handl))",
        variant="detected",
        any_case=True,
    ),
)

DEVICES = (
    rule(
        "device/same_device_arg",
        "runtime",
        "An argument is on the wrong device.",
        r"\bExpected tensor for [^\n]{1,120} to have the same device as\b",
        r"\bTensor on device \S{1,40} is not on the expected device\b",
        r"\bTensor for [^\n]{1,120} is on \w{1,20}, but expected (?:it|them) to be on\b",
        r"\bexpected device \S{1,20} but got device\b",
    ),
    rule(
        "device/input_weight_type",
        "runtime",
        "One of the two is a device type; two types of one device are a dtype error.",
        r"\bInput type \(torch\.(?:cuda\.\w{1,40}\) and (?:weight|bias) type "
        r"\(torch\.(?!cuda\.)|(?!cuda\.)\w{1,40}\) and (?:weight|bias) type \(torch\.cuda\.)",
        r"\bInput type \((?:MPS\w{1,40}\) and (?:weight|bias) type \(torch\.|torch\.\w{1,40}\) and (?:weight|bias) "
        r"type \(MPS)",
    ),
    rule(
        "device/device_type",
        "runtime",
        "The wording of torch 1.2-1.7.",
        r"\bExpected object of device type \w{1,20} but got device type\b",
    ),
    rule(
        "device/backend",
        "runtime",
        "The wording of torch 1.0-1.2.",
        r"\bExpected object of backend \w{1,20} but got backend\b",
    ),
    rule(
        "device/indices",
        "runtime",
        "Index and indexed tensor disagree.",
        r"\bindices should be either on \w{1,20} or on the same device\b",
        r"\bInput, output and indices must be on the current device\b",
    ),
    rule(
        "device/dataparallel",
        "runtime",
        "A replica's source is on another device.",
        r"\bmodule must have its parameters and buffers on device\b",
    ),
    rule(
        "device/generator",
        "runtime",
        "The generator's device.",
        r"\bExpected an? '\w{1,20}' device type for generator\b",
        quoted=True,
    ),
    rule(
        "device/numpy_of_cuda",
        "TypeError",
        "Host memory was needed.",
        r"\bcan't convert \S{1,20} device type tensor to numpy\b",
    ),
    rule("device/pin_cuda_tensor", "runtime", "Host memory was needed.", r"\bonly dense CPU tensors can be pinned\b"),
    rule(
        "device/same_device",
        "runtime ValueError",
        "Operands live on different devices.",
        r"\bExpected all tensors to be on the same device\b",
        r"\b(?:tensors?|inputs?|indices|index|arguments?|outputs?|events|mask|window|grid)\b[^\n]{0,200}"
        r"\b(?:on|in|at|have|has) (?:the )?same (?:CUDA )?device\b",
    ),
)

SHAPES = (
    rule(
        "shape/matmul",
        TENSORS,
        "Inner dimensions differ.",
        r"\bmat1 and mat2 shapes cannot be multiplied\b",
        r"\bmat1 dim 1 must match mat2 dim 0\b",
        r"\bsize mismatch, (?:m1|got)\b",
        r"\bmatmul: Input operand\b",
        r"\bExpected size for first two dimensions of batch2\b",
        r"\bshapes \([\d, ]{1,60}\) and \([\d, ]{1,60}\) not aligned\b",
        r"\beinsum\(\): [^\n]{0,120}does not broadcast\b",
    ),
    rule(
        "shape/broadcast",
        TENSORS,
        "Operands do not broadcast.",
        r"\bThe size of tensor a \([0-9]+\) must match the size of tensor b\b",
        r"\boperands could not be broadcast\b",
        r"\bcould not broadcast input array\b",
        r"\bshape mismatch: ",
        r"\bIncompatible shapes: ",
        r"\bshape of the mask\b",
        r"\binconsistent tensor size\b",
    ),
    rule(
        "shape/state_dict",
        "runtime",
        "Checkpoint and model differ in sizes; missing keys alone are no shape.",
        r"\bsize mismatch for \S{1,300}: copying a param with shape\b",
    ),
    rule(
        "shape/loss_target",
        TENSORS,
        "Loss input and target differ.",
        r"\bExpected input batch_size \([0-9]+\) to match target batch_size\b",
        r"\b(?:Using a t|T)arget size \(torch\.Size[^\n]{1,120}\) (?:that is different to|must be the same as) "
        r"(?:the )?input size\b",
        r"\bonly batches of spatial targets supported\b",
        r"\bmulti-target not supported\b",
    ),
    rule(
        "shape/conv_channels",
        TENSORS,
        "Channels differ from the weight's.",
        r"\bGiven (?:groups=[0-9]+|transposed=[0-9]+), weight of size\b",
        r"\brunning_mean should contain [0-9]+ elements\b",
        r"\bGiven normalized_shape=",
    ),
    rule(
        "shape/rank",
        TENSORS,
        "The number of dimensions differs.",
        r"\b[Ee]xpected [0-9]D \(unbatched\) or",
        r"\bexpected [0-9]D[^\n]{0,60} input \(got ",
        r"\bExpected [0-9]-dimensional input for [0-9]-dimensional weight\b",
        r"\bTensors must have same number of dimensions\b",
        r"\b[0-9]D tensors? expected, but got\b",
        r"\bDimension out of range \(expected\b",
        r"\btoo many indices for (?:tensor|array)\b",
    ),
    rule(
        "shape/view_reshape",
        TENSORS,
        "The element counts differ.",
        r"\bshape '\[[-\d, ]{1,120}\]' is invalid for input of size\b",
        r"\bcannot reshape array of size\b",
        r"\bdon't multiply up to the size of dim\b",
        quoted=True,
    ),
    rule(
        "shape/expand",
        TENSORS,
        "The tensor does not expand.",
        r"\bThe expanded size of the tensor \([0-9]+\) must match the existing size\b",
    ),
    rule(
        "shape/concat",
        TENSORS,
        "Parts differ off the joined dimension.",
        r"\bSizes of tensors must match except in dimension\b",
        r"\binput array dimensions except for the concatenation axis must match\b",
    ),
    rule(
        "shape/collate",
        TENSORS,
        "Samples of one batch differ.",
        r"\bstack expects each tensor to be equal size\b",
        r"\bTrying to resize storage that is not resizable\b",
        r"\bexpected sequence of length [0-9]+ at dim\b",
        r"\binhomogeneous shape after\b",
        r"\beach element in list of batch should be of equal size\b",
        r"\bSize mismatch between tensors\b",
    ),
    rule(
        "shape/layer_input",
        TENSORS,
        "A layer was built for another size.",
        r"\binput\.size\(-1\) must be equal to input_size\b",
        r"\bExpected hidden(?:\[[01]\])? size \(",
        r"\bwas expecting embedding dimension of\b",
        r"\bOutput size is too small\b",
        r"\bKernel size can't be greater than actual input size\b",
    ),
)
